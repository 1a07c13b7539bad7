//go:build soak

package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestSentinels: a deployment in good order, and then with a sentinel and a replica gone, with a quorum
// that cannot be reached, and with a name that the sentinels do not know.
func TestSentinels(t *testing.T) {
	t.Parallel()
	s := testserver.StartSentinels(t, testserver.SentinelOptions{
		Args:         []string{"--requirepass", password, "--masterauth", password, "--min-replicas-to-write", "1"},
		Password:     password,
		SentinelArgs: []string{"sentinel down-after-milliseconds " + testserver.PrimaryName + " 1000"},
	})
	raw := "redis+sentinel://:" + password + "@" + s.Addrs() + "/" + testserver.PrimaryName
	expect(t, examine(t, raw),
		want{"transport", OK, "on this host"}, want{"sentinels", OK, "3 sentinels answer, name " + s.Servers[0].Addr},
		want{"replicas ready", OK, "2 replicas"}, want{"role", OK, "master"}, want{"access", OK, ""},
		want{"replicas", Warning, "min-replicas-to-write is 1"})
	one := "redis+sentinel://:" + password + "@" + s.Sentinels[0].Addr + "/" + testserver.PrimaryName
	expect(t, examine(t, one), want{"sentinels", Note, "names 1 of 3"})
	expect(t, examine(t, strings.TrimSuffix(raw, testserver.PrimaryName)+"other"), want{"sentinels", Error, "No such master"}, want{"lock", Error, "No such master"})

	s.Servers[2].Kill()
	s.Sentinels[0].Kill()
	await(t, "the others notice", func() bool {
		found := examine(t, raw)
		return found["replicas ready"].Severity == Warning && found["sentinels"].Severity == Warning
	})
	expect(t, examine(t, raw), want{"replicas ready", Warning, s.Servers[2].Addr + " is "}, want{"sentinels", Warning, "1 of 3 sentinels do not answer"})
	s.Sentinels[1].Kill()
	await(t, "the last one notices", func() bool { return strings.Contains(examine(t, raw)["sentinels"].Found, "NOQUORUM") })
}

// TestCluster: a cluster in good order but for replicas, then with one, then with a master gone.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true, AOF: true})
	raw := "redis+cluster://" + c.Addrs()
	expect(t, examine(t, raw),
		want{"transport", OK, "on this host"}, want{"cluster", OK, "all 16384 slots are served"},
		want{"cluster nodes", OK, "6 nodes serve"}, want{"role", OK, "on all 3 masters"}, want{"access", OK, "on all 3 masters"},
		want{"persistence", OK, ""}, want{"replicas", Warning, "on all 3 masters"}, want{"channels", OK, "on 3 masters"})
	expect(t, examine(t, raw+"?hf.layout=redisson"), want{"access", OK, "on all 3 masters"}, want{"channels", OK, "hear of releases on 3 masters"}, want{"lock", OK, ""})
	if got := c.Servers[1].Ask("ACL", "SETUSER", "default", "-scan", "-ssubscribe"); got != "OK" {
		t.Fatal(got)
	}
	if got := c.Servers[2].Ask("ACL", "SETUSER", "default", "-spublish"); got != "OK" {
		t.Fatal(got)
	}
	expect(t, examine(t, raw), want{"access", Error, "on " + c.Servers[1].Addr + ": user \"default\" was refused: SCAN"},
		want{"channels", Note, "no sharded channels on "}, want{"channels", Note, c.Servers[1].Addr}, want{"channels", Note, c.Servers[2].Addr})
	refused := []string{c.Servers[1].Addr, c.Servers[2].Addr}
	slices.Sort(refused)
	expect(t, examine(t, raw+"?hf.layout=redisson"), want{"access", Error, "on " + strings.Join(refused, ", ")},
		want{"channels", Note, "no sharded channels on "}, want{"channels", Note, c.Servers[1].Addr}, want{"channels", Note, c.Servers[2].Addr})
	c.Servers[3].Kill()
	await(t, "the others notice", func() bool { return examine(t, raw)["cluster nodes"].Severity == Warning })
	expect(t, examine(t, raw), want{"cluster nodes", Warning, c.Servers[3].Addr}, want{"cluster", OK, ""})
	c.Servers[0].Kill()
	await(t, "the cluster is down", func() bool {
		f := examine(t, raw)["cluster"]
		return f.Severity == Error && strings.Contains(f.Found, "cluster_state is fail")
	})
}
