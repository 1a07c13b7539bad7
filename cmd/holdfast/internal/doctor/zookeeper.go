package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/zklock"
	"github.com/holdfastlock/holdfast/zklock/ensemble"
)

// zooKeeperChecks are the checks of a ZooKeeper ensemble. They share what its servers tell.
var zooKeeperChecks = []Check{zooKeeperTransport, zooKeeperEnsemble}

// zooKeeperTransport checks that connections are encrypted.
func zooKeeperTransport(_ context.Context, p Patient) []Finding {
	if p.Client == nil {
		return nil // nothing has been sent: the lock's finding says why
	}
	if p.URL.Scheme == "zks" {
		return good("transport", "connections are encrypted")
	}
	return []Finding{{
		Check: "transport", Severity: Note, Found: "connections are not encrypted",
		Risk:   "anyone on the network can read a password, and take or release any lock",
		Remedy: "on a network that others use, use zks:// and secureClientPort",
	}}
}

// zooKeeperPatient is an ensemble under examination.
type zooKeeperPatient struct {
	config  zklock.Config
	servers []ensemble.Server
	ttl     time.Duration // of locks that have none of their own
}

func zooKeeperEnsemble(ctx context.Context, p Patient) []Finding {
	params, u, err := storeurl.Take(p.URL)
	if err != nil {
		return nil // the lock's finding says why
	}
	z := &zooKeeperPatient{ttl: cmp.Or(params.TTL, holdfast.DefaultTTL)}
	if z.config, err = zklock.ParseURL(u); err != nil {
		return nil // as above
	}
	z.servers = ensemble.Ask(ctx, z.config)
	findings := z.quorum()
	if !slices.ContainsFunc(z.servers, func(s ensemble.Server) bool { return s.Err == nil }) {
		return findings // nothing else was seen
	}
	for _, check := range []func() []Finding{z.leader, z.versions, z.settings, z.disks, z.load, z.connections} {
		findings = append(findings, check()...)
	}
	if p.Client != nil {
		findings = append(findings, z.try(ctx)...)
	}
	return append(findings, good("store clock", "sessions of ZooKeeper run by a clock that cannot be set: "+
		"it does not matter what its wall clock shows")...)
}

// numbers returns the servers that told a value, with their addresses.
func (z *zooKeeperPatient) numbers(name string) (values []float64, addrs []string) {
	for _, s := range z.servers {
		if v, ok := s.Number(name); ok {
			values, addrs = append(values, v), append(addrs, s.Addr)
		}
	}
	return values, addrs
}

// most returns the largest value, and which server told it; ok is false if none did.
func (z *zooKeeperPatient) most(name string) (value float64, addr string, ok bool) {
	values, addrs := z.numbers(name)
	if len(values) == 0 {
		return 0, "", false
	}
	value = slices.Max(values)
	return value, addrs[slices.Index(values, value)], true
}

// is returns the addresses of the servers with a role.
func (z *zooKeeperPatient) is(role string) (addrs []string) {
	for _, s := range z.servers {
		if s.Err == nil && s.Role == role {
			addrs = append(addrs, s.Addr)
		}
	}
	return addrs
}

func (z *zooKeeperPatient) quorum() []Finding {
	const check = "quorum"
	var down []string
	for _, s := range z.servers {
		if s.Err != nil {
			down = append(down, s.Addr)
		}
	}
	n, idle := len(z.servers), z.is("not serving")
	alone := len(z.is("standalone")) > 0
	switch {
	case len(down) == n:
		return []Finding{{
			Check: check, Severity: Error, Found: fmt.Sprintf("no server answers: %v", z.servers[0].Err),
			Risk: "without a majority no lock is taken, renewed or released", Remedy: "start the missing servers",
		}}
	case len(idle)+len(down) == n:
		return []Finding{{
			Check: check, Severity: Error, Found: fmt.Sprintf("no server serves: %s have no leader", strings.Join(idle, ", ")),
			Risk:   "without a majority no lock is taken, renewed or released",
			Remedy: "start the missing servers, and check the network between them",
		}}
	case down != nil:
		return []Finding{{
			Check: check, Severity: Warning,
			Found: fmt.Sprintf("%d of the %d servers of the URL cannot be reached from here: %s", len(down), n, strings.Join(down, ", ")),
			Risk:  fmt.Sprintf("an ensemble of %d bears the loss of %d", n, (n-1)/2), Remedy: "start them, or let this host reach them",
		}}
	case len(z.is("read-only")) > 0:
		return []Finding{{
			Check: check, Severity: Warning, Found: "a server is cut off from the others, and only lets clients read: " + strings.Join(z.is("read-only"), ", "),
			Risk: "locks stand still when a majority is cut off", Remedy: "check the network between the servers",
		}}
	case alone && n > 1:
		return []Finding{{
			Check: check, Severity: Error, Found: "servers that know nothing of each other are in one URL: " + strings.Join(z.is("standalone"), ", "),
			Risk:   "each has locks of its own, so a lock may have several holders",
			Remedy: "name the servers of one ensemble only: each has all of them in its zoo.cfg",
		}}
	case alone:
		return []Finding{{
			Check: check, Severity: Note, Found: "there is one server",
			Risk: "when it is down no lock is taken, renewed or released", Remedy: "an ensemble of three bears the loss of one",
		}}
	}
	if voters := z.voters(); voters > n {
		return []Finding{{
			Check: check, Severity: Note, Found: fmt.Sprintf("the URL names %d of %d servers", n, voters),
			Risk: "locks stand still when those are down, or none of them leads", Remedy: "name all servers in the URL",
		}}
	}
	return good(check, "all %d servers answer; the ensemble bears the loss of %d", n, (n-1)/2)
}

// voters returns how many members that vote a server's configuration has; 0: none tells.
func (z *zooKeeperPatient) voters() (most int) {
	for _, s := range z.servers {
		n := 0
		for key, value := range s.Values {
			if strings.HasPrefix(key, "server.") && !strings.Contains(value, ":observer") {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// leader checks that the driver can keep its sessions at the leader.
func (z *zooKeeperPatient) leader() []Finding {
	const check = "leader"
	leaders := append(z.is("leader"), z.is("standalone")...)
	switch {
	case len(leaders) == 1:
		return good(check, "%s leads and takes clients", leaders[0])
	case len(leaders) > 1:
		return []Finding{{
			Check: check, Severity: Warning, Found: "several servers say that they lead: " + strings.Join(leaders, ", "),
			Risk:   "locks stand still until one of them learns that it does not",
			Remedy: "run doctor again; if they go on to say so, the URL has servers of several ensembles",
		}}
	case len(z.is("follower"))+len(z.is("observer")) == 0:
		return nil // the quorum's finding says why
	}
	f := Finding{
		Check: check, Severity: Warning, Found: "no server of the URL says that it leads",
		Risk: "sessions are kept at a follower: if the leader stands still, or that follower is cut off from it, " +
			"a lock may have two holders",
		Remedy: "let the leader take clients (leaderServes=yes), let all servers answer srvr (4lw.commands.whitelist), and name all servers in the URL",
	}
	if idle := z.is("not serving"); len(idle) == 1 {
		f.Found = fmt.Sprintf("the leader, which must be %s, takes no clients: leaderServes=no", idle[0])
	}
	return []Finding{f}
}

// settings checks the bounds of sessions and the tick.
func (z *zooKeeperPatient) settings() []Finding {
	const check = "sessions"
	tick, addr, ok := z.most("tick_time")
	longest, _, okay := z.least("max_session_timeout")
	shortest, _, fine := z.most("min_session_timeout")
	if !ok || !okay || !fine {
		return []Finding{{
			Check: check, Severity: Note, Found: "not seen: the servers' tick and bounds of sessions. No server answers conf, and no admin server was found",
			Risk:   "a TTL below the bounds is refused, and one above them is trusted for less than it says",
			Remedy: "add conf and mntr to 4lw.commands.whitelist, or say by hf.admin=PORT where the admin servers are",
		}}
	}
	ms := func(n float64) time.Duration { return time.Duration(n * float64(time.Millisecond)) }
	for _, name := range []string{"tick_time", "min_session_timeout", "max_session_timeout"} {
		if values, addrs := z.numbers(name); slices.Min(values) != slices.Max(values) {
			return []Finding{{
				Check: check, Severity: Warning, Found: fmt.Sprintf("servers differ in %s: %s has %v, %s has %v", name,
					addrs[slices.Index(values, slices.Min(values))], ms(slices.Min(values)), addrs[slices.Index(values, slices.Max(values))], ms(slices.Max(values))),
				Risk: "after an election the same TTL may be refused, or ends earlier", Remedy: "give all servers the same zoo.cfg",
			}}
		}
	}
	found := fmt.Sprintf("sessions last from %v to %v, and end up to a tick of %v late; the TTL of locks is %v unless they say otherwise",
		ms(shortest), ms(longest), ms(tick), z.ttl)
	switch {
	case ms(longest) < z.ttl:
		return []Finding{{
			Check: check, Severity: Warning, Found: found,
			Risk:   fmt.Sprintf("a hold is lost after %v without a renewal, earlier than its TTL says", ms(longest)),
			Remedy: "raise maxSessionTimeout in zoo.cfg, or give locks a shorter TTL: hf.ttl",
		}}
	case ms(shortest) > z.ttl:
		return []Finding{{
			Check: check, Severity: Error, Found: found, Risk: "locks with that TTL are refused",
			Remedy: "lower minSessionTimeout or tickTime in zoo.cfg, or give locks a longer TTL: hf.ttl",
		}}
	case ms(tick) > z.ttl/3:
		return []Finding{{
			Check: check, Severity: Note, Found: fmt.Sprintf("%s; %s has the tick", found, addr),
			Risk: "a dead holder's name opens late", Remedy: "a tick of 2 s or less is usual: tickTime in zoo.cfg",
		}}
	}
	return good(check, "%s", found)
}

// least is most for the smallest value.
func (z *zooKeeperPatient) least(name string) (value float64, addr string, ok bool) {
	values, addrs := z.numbers(name)
	if len(values) == 0 {
		return 0, "", false
	}
	value = slices.Min(values)
	return value, addrs[slices.Index(values, value)], true
}

// disks checks how long a server's log takes to reach its disk. Each acquire, release and renewal waits
// for the disks of a majority.
func (z *zooKeeperPatient) disks() []Finding {
	slow, addr, ok := z.most("max_fsynctime")
	if !ok {
		return nil // servers before 3.6 do not tell, nor those that answer neither mntr nor by an admin server
	}
	usual, _, _ := z.most("avg_fsynctime")
	return judgeSyncs(addr, time.Duration(usual*float64(time.Millisecond)), time.Duration(slow*float64(time.Millisecond)), z.ttl)
}

// slowSyncs is from which average on a disk is too slow.
const slowSyncs = 20 * time.Millisecond

func judgeSyncs(addr string, usual, slow, ttl time.Duration) []Finding {
	found := fmt.Sprintf("syncs of the log to the disk took %v on average at most, and the slowest, of %s, took %v", usual, addr, slow)
	if usual > slowSyncs || slow > ttl/3 {
		return []Finding{{
			Check: "disks", Severity: Warning, Found: found,
			Risk:   "acquires, releases and renewals wait for the disks of a majority, and holds are lost when that takes long",
			Remedy: "give the log a disk of its own (dataLogDir), or use longer TTLs",
		}}
	}
	return good("disks", "%s", found)
}

// manyOutstanding is how many requests that wait make a server look overloaded. It stops reading from
// clients at 1,000 (globalOutstandingLimit).
const manyOutstanding = 100

func (z *zooKeeperPatient) load() []Finding {
	const check = "load"
	waiting, addr, ok := z.most("outstanding_requests")
	if !ok {
		return nil // the finding of sessions says why
	}
	if waiting > manyOutstanding {
		return []Finding{{
			Check: check, Severity: Warning, Found: fmt.Sprintf("%.0f requests wait at %s", waiting, addr),
			Risk:   "renewals wait with them, and short leases are lost",
			Remedy: "look for what else loads the ensemble, and give locks one of their own",
		}}
	}
	return good(check, "at most %.0f requests wait at a server", waiting)
}

// connections compares how many connections there are with what servers take from one host. A client
// has one for each sum of TTL and lock-delay.
func (z *zooKeeperPatient) connections() []Finding {
	const check = "connections"
	var most float64
	var found string
	told, refused := false, 0.0
	for _, s := range z.servers {
		bound, ok := s.Number("max_client_cnxns")
		open, known := s.Number("num_alive_connections")
		if !ok || !known {
			continue
		}
		told = true
		if n, ok := s.Number("connection_rejected"); ok {
			refused += n
		}
		if share := open / bound; bound > 0 && share >= most {
			most, found = share, fmt.Sprintf("%s takes %.0f connections of one host, and has %.0f of all hosts", s.Addr, bound, open)
		}
	}
	switch {
	case !told:
		return nil // the finding of sessions says why
	case refused > 0:
		return []Finding{{
			Check: check, Severity: Warning, Found: fmt.Sprintf("%s; servers have refused %.0f", cmp.Or(found, "connections have no bound of one host"), refused),
			Risk: "clients that are refused take no locks, and lose those that they have", Remedy: "raise maxClientCnxns in zoo.cfg",
		}}
	case most >= 0.8:
		return []Finding{{
			Check: check, Severity: Note, Found: found,
			Risk:   "if most are of one host, or come through one proxy, further clients are refused",
			Remedy: "raise maxClientCnxns in zoo.cfg",
		}}
	case found == "":
		return good(check, "servers take any number of connections of one host")
	}
	return good(check, "%s", found)
}

// try does what a client does, and judges it.
func (z *zooKeeperPatient) try(ctx context.Context) []Finding {
	trial, err := ensemble.Try(ctx, z.config)
	if err != nil {
		return []Finding{{
			Check: "access", Severity: Error, Found: fmt.Sprintf("what a lock needs was refused: %v", err),
			Risk:   "locks cannot be taken",
			Remedy: "let the URL's user read, write, create and delete below the prefix: setAcl",
		}}
	}
	return append(append(z.access(trial), z.requests(trial)...), z.latency(trial)...)
}

func (z *zooKeeperPatient) access(trial *ensemble.Trial) []Finding {
	const check = "access"
	if len(trial.Others) == 0 {
		return good(check, "without the URL's user nobody may read, change or delete its nodes")
	}
	may := strings.Join(trial.Others, ", ")
	f := Finding{
		Check: check, Severity: Note, Found: "a client without a user may do this with nodes of locks: " + may,
		Risk: "anyone who can reach the servers can take, release and delete any lock", Remedy: "name a user in the URL: zk://user:password@host",
	}
	if z.config.User != "" {
		f.Severity = Warning
		f.Remedy = "leave hf.acl=open out, and give the prefix to the user: setAcl"
		if z.config.Open {
			f.Severity = Note
		}
	}
	return []Finding{f}
}

func (z *zooKeeperPatient) requests(trial *ensemble.Trial) []Finding {
	const check = "requests"
	found := fmt.Sprintf("requests of %d bytes are answered", trial.Request)
	for _, s := range z.servers {
		if text, ok := s.Values["jute.maxbuffer"]; ok {
			if n, err := strconv.Atoi(text); err == nil {
				found += fmt.Sprintf("; jute.maxbuffer of %s is %d", s.Addr, n)
			}
		}
	}
	if trial.Request < slices.Max(ensemble.RequestSizes) {
		return []Finding{{
			Check: check, Severity: Warning, Found: found + ", and larger ones are not",
			Risk:   "long notes, and several permits at once, are refused; Java's clients cannot list names with many waiters",
			Remedy: "leave jute.maxbuffer at its default of 1 MiB, on servers and on clients",
		}}
	}
	return good(check, "%s", found)
}

// latency judges what a lock waits for: a write.
func (z *zooKeeperPatient) latency(trial *ensemble.Trial) []Finding {
	sorted := slices.Sorted(slices.Values(trial.Writes))
	return []Finding{judgeLatency("writes", sorted[len(sorted)/2], sorted[(len(sorted)-1)*99/100], len(sorted))}
}
