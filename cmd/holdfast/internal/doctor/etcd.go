package doctor

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/etcdlock"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// etcdChecks are the checks of an etcd cluster. They share a client.
var etcdChecks = []Check{etcdTransport, etcdCluster}

// etcdTransport checks that connections are encrypted.
func etcdTransport(_ context.Context, p Patient) []Finding {
	if p.Client == nil {
		return nil // nothing has been sent: the lock's finding says why
	}
	if p.URL.Scheme == "etcds" {
		return good("transport", "connections are encrypted")
	}
	return []Finding{{
		Check: "transport", Severity: Note, Found: "connections are not encrypted",
		Risk:   "anyone on the network can read a password, and take or release any lock",
		Remedy: "on a network that others use, use etcds://",
	}}
}

// etcdMember is the state of one member.
type etcdMember struct {
	name   string
	url    string // for clients
	status *clientv3.StatusResponse
	err    error
}

// etcdPatient is a cluster under examination.
type etcdPatient struct {
	etcd     *clientv3.Client
	tls      *tls.Config // nil: none
	prefix   string
	members  []etcdMember // voting ones
	listErr  error
	shortest time.Duration // TTL
}

// memberWithin is how long a member may take to answer.
const memberWithin = 2 * time.Second

func etcdCluster(ctx context.Context, p Patient) []Finding {
	_, u, err := storeurl.Take(p.URL)
	if err != nil {
		return nil // the lock's finding says why
	}
	config, err := etcdlock.Config(u)
	if err != nil {
		return nil // the lock's finding says why
	}
	etcd, err := clientv3.New(config)
	if err != nil {
		return nil // as above
	}
	defer etcd.Close()
	e := &etcdPatient{etcd: etcd, tls: config.TLS, prefix: strings.Trim(p.URL.Path, "/")}
	if e.prefix == "" {
		e.prefix = etcdlock.DefaultPrefix
	}
	e.ask(ctx)
	if e.listErr != nil && p.Client == nil {
		return e.quorum(ctx) // nothing else was seen
	}
	var findings []Finding
	for _, check := range []func(context.Context) []Finding{
		e.quorum, e.versions, e.quota, e.compaction, e.latency, e.disks, e.access,
	} {
		findings = append(findings, check(ctx)...)
	}
	return append(findings, good("store clock", "leases of etcd run by a clock that cannot be set: "+
		"it does not matter what its wall clock shows")...)
}

// ask asks all voting members for their state.
func (e *etcdPatient) ask(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	list, err := e.etcd.MemberList(ctx)
	if e.listErr = err; err != nil {
		return
	}
	voting := slices.DeleteFunc(list.Members, func(m *etcdserverpb.Member) bool { return m.IsLearner })
	e.members = make([]etcdMember, len(voting))
	done := make(chan struct{})
	for i, m := range voting {
		go func() {
			defer func() { done <- struct{}{} }()
			e.members[i] = etcdMember{name: m.Name, err: errors.New("it has told no address for clients")}
			if len(m.ClientURLs) > 0 {
				e.members[i].url = m.ClientURLs[0]
				e.members[i].status, e.members[i].err = e.etcd.Status(ctx, m.ClientURLs[0])
			}
		}()
	}
	for range voting {
		<-done
	}
}

func (e *etcdPatient) quorum(context.Context) []Finding {
	const check = "quorum"
	if e.listErr != nil {
		return []Finding{{
			Check: check, Severity: Error, Found: fmt.Sprintf("no member answers for the cluster: %v", e.listErr),
			Risk: "without a majority no lock is taken, renewed or released", Remedy: "start the missing members",
		}}
	}
	var down []string
	leaders := map[uint64]bool{}
	for _, m := range e.members {
		if m.err != nil {
			down = append(down, m.name)
		} else {
			leaders[m.status.Leader] = true
		}
	}
	n := len(e.members)
	spare := (n - 1) / 2
	switch {
	case leaders[0] || len(leaders) > 1:
		return []Finding{{
			Check: check, Severity: Warning, Found: "members do not agree on a leader",
			Risk:   "locks stand still while there is none",
			Remedy: "check the network between the members, and how long their disks take",
		}}
	case down != nil:
		return []Finding{{
			Check: check, Severity: Warning,
			Found: fmt.Sprintf("%d of %d members cannot be reached from here: %s",
				len(down), n, strings.Join(down, ", ")),
			Risk:   fmt.Sprintf("the cluster bears the loss of %d", spare),
			Remedy: "start them, or let this host reach the addresses that they publish for clients",
		}}
	case spare == 0:
		return []Finding{{
			Check: check, Severity: Note, Found: fmt.Sprintf("the cluster has %d voting members", n),
			Risk:   "when one is down no lock is taken, renewed or released",
			Remedy: "three members bear the loss of one",
		}}
	}
	return good(check, "all %d members answer; the cluster bears the loss of %d", n, spare)
}

func (e *etcdPatient) quota(ctx context.Context) []Finding {
	const check = "space"
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	if alarms, err := e.etcd.AlarmList(ctx); err == nil {
		for _, a := range alarms.Alarms {
			if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
				return []Finding{{
					Check: check, Severity: Error, Found: "the store is full: it takes no new keys",
					Risk:   "no lock is taken",
					Remedy: "compact, defragment, and disarm the alarm: etcdctl compact, defrag, alarm disarm",
				}}
			}
		}
	}
	var size, quota int64
	for _, m := range e.members {
		if m.err == nil && m.status.DbSize > size {
			size, quota = m.status.DbSize, m.status.DbSizeQuota
		}
	}
	switch {
	case quota > 0 && size > quota/10*8:
		return []Finding{{
			Check: check, Severity: Warning, Found: fmt.Sprintf("%d of %d MiB are in use", size>>20, quota>>20),
			Risk: "when it is full no lock is taken", Remedy: "compact and defragment, or raise --quota-backend-bytes",
		}}
	case quota == 0:
		return good(check, "%d MiB are in use", size>>20)
	}
	return good(check, "%d of %d MiB are in use", size>>20, quota>>20)
}

// muchHistory is from how many revisions without a compaction on there is a warning.
const muchHistory = 100_000

// compaction checks that history is compacted. Etcd does not publish its settings, so the check
// reads an old revision.
func (e *etcdPatient) compaction(ctx context.Context) []Finding {
	const check = "compaction"
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	r, err := e.etcd.Get(ctx, e.prefix+"/", clientv3.WithCountOnly())
	if err != nil {
		return nil // the lock's finding says why
	}
	_, err = e.etcd.Get(ctx, e.prefix+"/", clientv3.WithCountOnly(), clientv3.WithRev(max(1, r.Header.Revision-muchHistory)))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return good(check, "history is compacted: less than %d of %d revisions are kept",
			muchHistory, r.Header.Revision)
	case err == nil && r.Header.Revision > muchHistory:
		return []Finding{{
			Check: check, Severity: Warning,
			Found:  fmt.Sprintf("more than %d revisions of history are kept", muchHistory),
			Risk:   "history grows until the store is full, and then no lock is taken",
			Remedy: "start etcd with --auto-compaction-retention=1h, say",
		}}
	case err == nil:
		return good(check, "the store is young: %d revisions", r.Header.Revision)
	}
	return nil
}

// latency measures what a lock waits for: a write, which waits for the disks of a majority, and a
// linearizable read.
func (e *etcdPatient) latency(ctx context.Context) []Finding {
	const check, attempts = "latency", 20
	ctx, cancel := context.WithTimeout(ctx, 5*memberWithin)
	defer cancel()
	lease, err := e.etcd.Grant(ctx, 1)
	if err != nil {
		return nil // the lock's finding says why
	}
	defer e.etcd.Revoke(ctx, lease.ID)
	key := e.prefix + "/doctor/" + rand.Text()
	var writes, reads []time.Duration
	for range attempts {
		begun := time.Now()
		if _, err := e.etcd.Put(ctx, key, "", clientv3.WithLease(lease.ID)); err != nil {
			return nil
		}
		written := time.Now()
		if _, err := e.etcd.Get(ctx, key); err != nil {
			return nil
		}
		writes, reads = append(writes, written.Sub(begun)), append(reads, time.Since(written))
		if _, err := e.etcd.KeepAliveOnce(ctx, lease.ID); err != nil {
			return nil
		}
	}
	slices.Sort(writes)
	slices.Sort(reads)
	e.shortest = time.Duration(lease.TTL) * time.Second
	found := fmt.Sprintf("of %d writes the slowest took %v, of as many reads %v; the shortest TTL is %v",
		attempts, writes[attempts-1].Round(time.Microsecond), reads[attempts-1].Round(time.Microsecond), e.shortest)
	if writes[attempts-1] > e.shortest/10 {
		return []Finding{{
			Check: check, Severity: Warning, Found: found,
			Risk:   "short leases are lost when the disks or the network take a little longer",
			Remedy: "give etcd a disk of its own, and use TTLs of at least a hundred times the slowest write",
		}}
	}
	return good(check, "%s", found)
}

func (e *etcdPatient) access(ctx context.Context) []Finding {
	const check = "access"
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	status, err := e.etcd.AuthStatus(ctx)
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty): // only root may ask
		return good(check, "etcd authenticates its users")
	case err != nil:
		return []Finding{{
			Check: check, Severity: Note, Found: fmt.Sprintf("not seen: whether etcd authenticates its users: %v", err),
			Risk: "if it does not, anyone who can reach it can take, release and delete any lock", Remedy: "run doctor again",
		}}
	case status.Enabled:
		return good(check, "etcd authenticates its users")
	}
	return []Finding{{
		Check: check, Severity: Note, Found: "etcd does not authenticate its users",
		Risk: "anyone who can reach it can take, release and delete any lock",
		Remedy: "restrict who can reach it, or turn on authentication: " +
			"a role with readwrite on the prefix " + e.prefix + "/ is enough",
	}}
}
