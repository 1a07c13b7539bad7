package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
	etcd, err := etcdlock.Dial(u)
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
