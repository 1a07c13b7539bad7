package testserver

import (
	"cmp"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
)

// EtcdOptions configure an etcd cluster. The zero value is one member as etcd is
// set up by default.
type EtcdOptions struct {
	Members   int           // 0: one
	Election  time.Duration // without a heartbeat before an election, ten times that between two; 0: 1 s
	Quota     int64         // bytes that the data may have; 0: etcd's default
	Sync      bool          // write to the disk before answering: what a killed process has written is there anyhow
	Cert, Key string        // files, for clients that come by TLS
	ClientCA  string        // a file, if those clients need a certificate that is signed by it
	Between   bool          // members reach each other through proxies only: see EtcdMember.Peers
}

// Etcd is an etcd cluster with a directory of its own.
type Etcd struct {
	Members []*EtcdMember
}

// EtcdMember is one member, a process.
type EtcdMember struct {
	*process
	Peers *chaos.Proxy // before its port for members; nil without EtcdOptions.Between
}

// StartEtcd starts a cluster, which ends with the test. It builds the server from
// its source.
func StartEtcd(t testing.TB, o EtcdOptions) *Etcd {
	t.Helper()
	program, err := etcdProgram()
	Must(t, err)
	return started(t, "etcd", func() (*Etcd, error) { return startEtcd(t, program, o) })
}

func startEtcd(t testing.TB, program string, o EtcdOptions) (*Etcd, error) {
	t.Helper()
	election, scheme, dir, e := cmp.Or(o.Election, time.Second), "http://", t.TempDir(), &Etcd{}
	if o.Cert != "" {
		scheme = "https://"
	}
	var cluster []string
	for i := range max(1, o.Members) {
		name, own := "m"+strconv.Itoa(i), FreeAddrs(t, 2)
		m := &EtcdMember{process: &process{t: t, ready: "etcdmember serves", Addr: own[0]}}
		t.Cleanup(m.Kill)
		peer, advertised := own[1], own[1]
		if o.Between {
			m.Peers = chaos.StartProxy(t, peer)
			advertised = m.Peers.Addr
		}
		cluster = append(cluster, name+"=http://"+advertised)
		m.args = []string{
			program, "-name", name, "-dir", filepath.Join(dir, name), "-client", scheme + m.Addr, "-peer", "http://" + peer,
			"-advertised", "http://" + advertised, "-cert", o.Cert, "-key", o.Key, "-clientca", o.ClientCA, "-quota", strconv.FormatInt(o.Quota, 10),
			"-nosync=" + strconv.FormatBool(!o.Sync), "-heartbeat", millis(max(time.Millisecond, election/10)), "-election", millis(election),
		}
		e.Members = append(e.Members, m)
	}
	return e, together(e.Members, func(m *EtcdMember) error {
		m.args = append(m.args, "-cluster", strings.Join(cluster, ","))
		return m.start()
	})
}

// Addrs returns the addresses of all members, separated by commas, as a store URL
// has them.
func (e *Etcd) Addrs() string { return addrs(e.Members, func(m *EtcdMember) string { return m.Addr }) }
