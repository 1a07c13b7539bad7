//go:build soak

package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestEtcdHealthy: three members that do well.
func TestEtcdHealthy(t *testing.T) {
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Members: 3})
	findings := examine(t, "etcd://"+e.Addrs())
	for check, want := range map[string]Severity{
		"quorum": OK, "version": OK, "space": OK, "compaction": OK, "store clock": OK, "transport": Note, "access": Note,
	} {
		if got := findings[check]; got.Severity != want {
			t.Errorf("%s of a cluster that does well: %+v", check, got)
		}
	}
	if got := findings["latency"]; got.Found == "" {
		t.Errorf("latency: %+v", findings)
	}
	e.Members[1].Kill()
	if got := examine(t, "etcd://"+e.Addrs())["quorum"]; got.Severity != Warning || !strings.Contains(got.Found, "m1") {
		t.Errorf("with a member down: %+v", got)
	}
	e.Members[2].Kill()
	if got := examine(t, "etcd://"+e.Addrs())["quorum"]; got.Severity != Error {
		t.Errorf("without a majority: %+v", got)
	}
}

// TestEtcdFull: a store that has reached its quota.
func TestEtcdFull(t *testing.T) {
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Quota: 1 << 20})
	raw := "etcd://" + e.Addrs()
	if got := examine(t, raw)["quorum"]; got.Severity != Note {
		t.Errorf("one member: %+v", got)
	}
	u, err := driver.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	config, err := etcdlock.Config(u)
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	end := time.Now().Add(30 * time.Second)
	for i := 0; err == nil; i++ {
		if _, err = etcd.Put(t.Context(), fmt.Sprint("fill", i), strings.Repeat("x", 64<<10)); time.Now().After(end) {
			t.Fatal("the store does not fill up")
		}
	}
	if got := examine(t, raw)["space"]; got.Severity != Error {
		t.Errorf("a full store: %+v", got)
	}
}

// TestEtcdDisks: what a member tells of its disk, and what that means.
func TestEtcdDisks(t *testing.T) {
	e := testserver.StartEtcd(t, testserver.EtcdOptions{Sync: true})
	if got := examine(t, "etcd://"+e.Addrs())["disks"]; !strings.Contains(got.Found, "member m0") || !strings.Contains(got.Found, "TTL is 2s") {
		t.Errorf("a member that writes to its disk: %+v", got)
	}
	const name = "etcd_disk_wal_fsync_duration_seconds"
	lines := func(counts ...int) string {
		var text strings.Builder
		for i, le := range []string{"0.001", "0.016", "0.064", "+Inf"} {
			fmt.Fprintf(&text, "%s_bucket{le=\"%s\"} %d\n", name, le, counts[i])
		}
		return "# TYPE " + name + " histogram\n" + text.String() + name + "_count 0\n"
	}
	for text, want := range map[string]time.Duration{
		lines(990, 1000, 1000, 1000): time.Millisecond,
		lines(989, 1000, 1000, 1000): 16 * time.Millisecond,
		lines(0, 980, 990, 1000):     64 * time.Millisecond,
		lines(0, 0, 0, 1000):         64 * time.Millisecond, // or more
		lines(0, 0, 0, 0):            0,
		"":                           0,
	} {
		if got, ok := slowSync(strings.NewReader(text)); got != want || ok != (want != 0) {
			t.Errorf("%s says %v, %t, not %v", text, got, ok, want)
		}
	}
	for slow, want := range map[time.Duration]Severity{time.Millisecond: OK, 20 * time.Millisecond: OK, 21 * time.Millisecond: Warning} {
		if got := judgeDisks("disks", "m0", slow, 2*time.Second); got[0].Severity != want {
			t.Errorf("a disk that takes %v: %+v", slow, got)
		}
	}
}
