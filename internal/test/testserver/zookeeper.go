package testserver

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
)

// ZooKeeperOptions configure a ZooKeeper ensemble. The zero value is one server of the newest version,
// which serves anyone in plain text and answers all commands of four letters.
type ZooKeeperOptions struct {
	Old     bool // 3.8.0, Debian's, instead of 3.9.5; the gate has no other
	Members int  // 0: one, standalone

	TickTime               time.Duration // 0: the server's default, 2 s
	MinSession, MaxSession time.Duration // bounds of a session's timeout; 0: 2 and 20 ticks
	SyncLimit              time.Duration // how long a member may be silent before others give it up; 0: 5 ticks, at least 2 s
	NoLeaderClients        bool          // leaderServes=no: the leader of an ensemble takes no clients
	Containers             time.Duration // between two searches for empty containers; 0: the server's default, 60 s
	FourLetters            string        // the commands of four letters that are answered; "": all; "none": none
	// Sync says that a transaction is forced to the disk before it is answered, as a server does by
	// default. Without it tests are quicker; what a killed process has written is there anyhow.
	Sync bool

	Cert, Key string // PEM files, for clients that come by TLS: see ZooKeeperMember.TLSAddr
	ClientCA  string // a PEM file, if those clients need a certificate that is signed by it

	// Between says that members reach each other, and clients reach members, through proxies only:
	// see ZooKeeper.Cut and ZooKeeperMember.Clients. It needs gcc too.
	Between bool
	Clock   bool     // each member has a wall clock of its own; needs gcc too
	JVM     []string // more arguments of the Java machine
}

// ZooKeeper is an ensemble with directories of its own.
type ZooKeeper struct {
	Members []*ZooKeeperMember
	t       testing.TB
	mute    bool                      // the leader takes no clients, and no commands either
	links   map[[2]int][]*chaos.Proxy // by the members' indices, from and to; with Between only
}

// ZooKeeperMember is one server, a process. Start waits until it serves, for which a majority must be
// there; Begin does not.
type ZooKeeperMember struct {
	*process
	TLSAddr string       // the same by TLS; "" without ZooKeeperOptions.Cert
	Clients *chaos.Proxy // before Addr; nil without ZooKeeperOptions.Between
	Dir     string       // with its data, as its log of transactions

	ensemble         *ZooKeeper
	direct           string // for clients, without a proxy
	quorum, election string // ports for the other members
}

// zooKeeperPackage is the name in packages.txt of the newest server; Debian's package is of an older one.
// scripts/install-zookeeper puts it into a directory of its own.
const (
	zooKeeperPackage = "zookeeper-3.9.5"
	zooKeeperDir     = "/usr/local/lib/holdfast-" + zooKeeperPackage
)

// oldZooKeeper lists the archives of Debian's server and what it needs, in /usr/share/java.
const oldZooKeeper = "zookeeper zookeeper-jute slf4j-api slf4j-simple netty-buffer netty-codec netty-common netty-handler " +
	"netty-resolver netty-transport netty-transport-native-unix-common netty-transport-native-epoll jackson-annotations " +
	"jackson-core jackson-databind commons-cli commons-io jetty9-server jetty9-servlet jetty9-http jetty9-io " +
	"jetty9-security jetty9-util jetty9-util-ajax servlet-api snappy-java metrics-core"

// routesSource is a small library that a member loads before its C library. Proxies in the configuration
// would not do: a member that another one calls for an election calls back at the address that the other
// one tells of itself, past every proxy.
//
//go:embed preload/routes.c
var routesSource []byte

// StartZooKeeper starts an ensemble, which ends with the test, and waits until all members serve. It
// takes less than a second for one member, and two for three. It needs the package libzookeeper-java, or
// what scripts/install-zookeeper installs: see [Need].
func StartZooKeeper(t testing.TB, o ZooKeeperOptions) *ZooKeeper {
	t.Helper()
	o.Old = o.Old || !Soak
	java := o.java(t)
	return started(t, "zookeeper", func() (*ZooKeeper, error) {
		z := o.ensemble(t, java, shortDir(t, ""))
		err := together(z.Members, func(m *ZooKeeperMember) error { return m.process.start() })
		for _, m := range z.Members {
			if err == nil {
				err = m.awaitServing()
			}
		}
		return z, err
	})
}

// java returns the program and its arguments up to the configuration file.
func (o *ZooKeeperOptions) java(t testing.TB) []string {
	t.Helper()
	var archives []string
	if o.Old {
		for name := range strings.FieldsSeq(oldZooKeeper) {
			archives = append(archives, Need(t, "/usr/share/java/"+name+".jar", "libzookeeper-java"))
		}
	} else {
		archives = []string{Need(t, filepath.Join(zooKeeperDir, zooKeeperPackage+".jar"), zooKeeperPackage), zooKeeperDir + "/*"}
	}
	// Small and quick to start. Members bind to addresses of IPv4, which routes.c knows.
	args := []string{
		Need(t, "java", "default-jre-headless"), "-cp", strings.Join(archives, ":"), "-Xmx256m", "-XX:TieredStopAtLevel=1",
		"-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", "-Dzookeeper.jmx.log4j.disable=true",
		"-Dzookeeper.electionPortBindRetry=30", // a connection of another program may have the port for a moment
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd_HH:mm:ss.SSS",
	}
	if o.Containers > 0 {
		args = append(args, "-Dznode.container.checkIntervalMs="+millis(o.Containers))
	}
	return append(append(args, o.JVM...), "org.apache.zookeeper.server.quorum.QuorumPeerMain")
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// ensemble writes the configurations and starts the proxies.
func (o *ZooKeeperOptions) ensemble(t testing.TB, java []string, dir string) *ZooKeeper {
	t.Helper()
	n := max(1, o.Members)
	const each = 4
	addrs := FreeAddrs(t, n*each)
	z := &ZooKeeper{t: t, mute: o.NoLeaderClients && n > 1, links: map[[2]int][]*chaos.Proxy{}}
	var servers []string
	for i := range n {
		own := addrs[each*i:]
		m := &ZooKeeperMember{
			process:  &process{t: t, ready: "binding to port", Addr: own[0]},
			ensemble: z, direct: own[0], quorum: portOf(own[1]), election: portOf(own[2]),
			Dir: filepath.Join(dir, strconv.Itoa(i+1)),
		}
		t.Cleanup(m.Kill)
		if o.Between {
			m.Clients = chaos.StartProxy(t, m.direct)
			m.Addr = m.Clients.Addr
		}
		if o.Cert != "" {
			m.TLSAddr = own[3]
		}
		servers = append(servers, fmt.Sprintf("server.%d=127.0.0.1:%s:%s", i+1, m.quorum, m.election))
		z.Members = append(z.Members, m)
	}
	if n == 1 {
		servers = nil
	}
	for i, m := range z.Members {
		Must(t, os.MkdirAll(m.Dir, 0o755))
		writeLines(t, filepath.Join(m.Dir, "myid"), strconv.Itoa(i+1))
		config := writeLines(t, filepath.Join(m.Dir, "zoo.cfg"), append(o.config(t, m), servers...)...)
		m.args = append(slices.Clone(java), config)
		var libraries []string
		if o.Clock {
			m.Clock = newClock(t, m.Dir)
			m.env = append(m.env, "HOLDFAST_TEST_CLOCK="+m.Clock.file)
			libraries = append(libraries, m.Clock.library)
		}
		if o.Between {
			m.env = append(m.env, "HOLDFAST_TEST_ROUTES="+z.route(i))
			libraries = append(libraries, preloadable(t, m.Dir, "routes", routesSource))
		}
		m.env = slices.Concat(os.Environ(), m.env, []string{"LD_PRELOAD=" + strings.Join(libraries, " ")})
	}
	return z
}

// config returns the lines of a member's zoo.cfg but for those that name the members.
func (o *ZooKeeperOptions) config(t testing.TB, m *ZooKeeperMember) []string {
	t.Helper()
	tick := cmp.Or(o.TickTime, 2*time.Second)
	silence := cmp.Or(o.SyncLimit, max(5*tick, 2*time.Second))
	ticks := func(d time.Duration) string { return strconv.FormatInt(int64(max(1, d/tick)), 10) }
	lines := []string{
		"dataDir=" + m.Dir, "clientPort=" + portOf(m.direct), "clientPortAddress=127.0.0.1",
		"tickTime=" + millis(tick), "initLimit=" + ticks(20*time.Second), "syncLimit=" + ticks(silence),
		"maxClientCnxns=0", "forceSync=" + yesNo(o.Sync), "leaderServes=" + yesNo(!o.NoLeaderClients),
		"admin.enableServer=false", "4lw.commands.whitelist=" + cmp.Or(o.FourLetters, "*"),
	}
	if o.MinSession > 0 {
		lines = append(lines, "minSessionTimeout="+millis(o.MinSession))
	}
	if o.MaxSession > 0 {
		lines = append(lines, "maxSessionTimeout="+millis(o.MaxSession))
	}
	if o.Cert != "" {
		lines = append(lines, "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
			"secureClientPort="+portOf(m.TLSAddr), "secureClientPortAddress=127.0.0.1",
			"ssl.keyStore.type=PEM", "ssl.keyStore.location="+keyStore(t, m.Dir, o.Cert, o.Key),
			"ssl.hostnameVerification=false") // of clients' certificates
		if o.ClientCA == "" {
			lines = append(lines, "ssl.clientAuth=none")
		} else {
			lines = append(lines, "ssl.clientAuth=need", "ssl.trustStore.type=PEM", "ssl.trustStore.location="+o.ClientCA)
		}
	}
	return lines
}

// keyStore writes a certificate and its key into one file, and returns its path.
func keyStore(t testing.TB, dir, cert, key string) string {
	t.Helper()
	one, err := os.ReadFile(cert)
	Must(t, err)
	other, err := os.ReadFile(key)
	Must(t, err)
	return writeLines(t, filepath.Join(dir, "key.pem"), string(one), string(other))
}

// route starts the proxies that lead from a member to the others, and returns what routes.c reads.
func (z *ZooKeeper) route(from int) string {
	var routes strings.Builder
	for to, m := range z.Members {
		if to == from {
			continue
		}
		for _, port := range []string{m.quorum, m.election} {
			p := chaos.StartProxy(z.t, "127.0.0.1:"+port)
			z.links[[2]int{from, to}] = append(z.links[[2]int{from, to}], p)
			fmt.Fprintf(&routes, "%s:%s ", port, portOf(p.Addr))
		}
	}
	return routes.String()
}

func (m *ZooKeeperMember) awaitServing() error {
	for end := time.Now().Add(60 * time.Second); !m.serves() || !m.listens(); time.Sleep(5 * time.Millisecond) {
		if !m.Running() || time.Now().After(end) {
			log := m.Log()
			return fmt.Errorf("the server ended, or did not serve within 60 s:\n%s", log[max(0, len(log)-8000):])
		}
	}
	return nil
}

// serves reports whether the member serves, or must be the leader that takes no clients.
func (m *ZooKeeperMember) serves() bool { return m.Mode() != "" || m.ensemble.leading(nil) == m }

// leading returns the member but the old one that says that it leads, or is alone, or nil. A leader that takes no
// clients says nothing: it is the one that does not serve while others do, which they only do if there is a leader.
func (z *ZooKeeper) leading(old *ZooKeeperMember) *ZooKeeperMember {
	var silent []*ZooKeeperMember
	following := false
	for _, m := range z.Members {
		if !m.Running() || m.paused {
			continue
		}
		switch mode := m.Mode(); {
		case mode == "":
			silent = append(silent, m)
		case mode == "follower":
			following = true
		case m != old:
			return m
		}
	}
	if z.mute && following && len(silent) == 1 && silent[0] != old {
		return silent[0]
	}
	return nil
}

// listens reports whether the port for clients that come by TLS is open, if there is one: a server that answers at
// the other may still be about to open it.
func (m *ZooKeeperMember) listens() bool {
	if m.TLSAddr == "" {
		return true
	}
	conn, err := net.DialTimeout("tcp", m.TLSAddr, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// Start starts the member again after Kill, at the same addresses, with the data that is on its disk, and
// waits until it serves, for which a majority must be there.
func (m *ZooKeeperMember) Start() {
	m.t.Helper()
	m.Begin()
	Must(m.t, m.awaitServing())
}

// Begin is Start, but does not wait until the member serves.
func (m *ZooKeeperMember) Begin() { m.process.Start() }

// Mode returns what the member says that it is: "leader", "follower" or "standalone", or "" if it does
// not serve.
func (m *ZooKeeperMember) Mode() string {
	text, _ := m.ask("srvr") // it may have ended
	_, mode, _ := strings.Cut(text, "\nMode: ")
	mode, _, _ = strings.Cut(mode, "\n")
	return mode
}

// Ask returns the member's answer to a command of four letters, past every proxy.
func (m *ZooKeeperMember) Ask(command string) string {
	m.t.Helper()
	text, err := m.ask(command)
	Must(m.t, err)
	return text
}

func (m *ZooKeeperMember) ask(command string) (string, error) {
	conn, err := net.DialTimeout("tcp", m.direct, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, command); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

// Addrs returns the addresses of all members, separated by commas, as a store URL has them.
func (z *ZooKeeper) Addrs() string {
	return addrs(z.Members, func(m *ZooKeeperMember) string { return m.Addr })
}

// TLSAddrs is Addrs for clients that come by TLS.
func (z *ZooKeeper) TLSAddrs() string {
	return addrs(z.Members, func(m *ZooKeeperMember) string { return m.TLSAddr })
}

// Shell returns ZooKeeper's own client, which is zkCli.sh elsewhere, connected to the first member: a
// program and its arguments. Commands are more arguments, or its input.
func (z *ZooKeeper) Shell() []string {
	m := z.Members[0]
	return []string{m.args[0], m.args[1], m.args[2], "org.apache.zookeeper.ZooKeeperMain", "-server", m.direct}
}

// Leader waits until a member that runs and is not paused leads, or is alone, and returns it. A leader that has
// just been cut off says that it leads, until it notices.
func (z *ZooKeeper) Leader() *ZooKeeperMember { return z.NewLeader(nil) }

// NewLeader is Leader, but does not take the old one for it.
func (z *ZooKeeper) NewLeader(old *ZooKeeperMember) (leader *ZooKeeperMember) {
	z.t.Helper()
	await(z.t, "a member leads", func() bool { leader = z.leading(old); return leader != nil })
	return leader
}

// Followers returns the members but the leader.
func (z *ZooKeeper) Followers() []*ZooKeeperMember {
	z.t.Helper()
	leader := z.Leader()
	return slices.DeleteFunc(slices.Clone(z.Members), func(m *ZooKeeperMember) bool { return m == leader })
}

// Cut cuts a member off from the others, though not from clients, until Heal: what is on its way is lost,
// and no connection can be made. The ensemble must have been started with Between.
func (z *ZooKeeper) Cut(m *ZooKeeperMember) { z.linksOf(m).Cut() }

// Silence is Cut, but no connection breaks: what is on its way arrives after Heal. The member and the others
// learn nothing until they have waited for each other for ZooKeeperOptions.SyncLimit.
func (z *ZooKeeper) Silence(m *ZooKeeperMember) {
	links := z.linksOf(m)
	links.HoldRequests()
	links.HoldReplies()
}

// Heal ends what Cut and Silence do.
func (z *ZooKeeper) Heal(m *ZooKeeperMember) { z.linksOf(m).Heal() }

func (z *ZooKeeper) linksOf(m *ZooKeeperMember) (links Proxies) {
	at := slices.Index(z.Members, m)
	for ends, proxies := range z.links {
		if ends[0] == at || ends[1] == at {
			links = append(links, proxies...)
		}
	}
	return links
}
