//go:build soak

// Package faulttest spoils real etcd members, and the processes that use them,
// and checks that etcdlock promises no more than holds.
package faulttest

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfastlock/holdfast/drivertest/faults"
	_ "github.com/holdfastlock/holdfast/etcdlock" // etcd://
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// must ends the test at an error.
var must = testserver.Must

func TestMain(m *testing.M) { faults.Main(m) }

func url(addr string) string { return "etcd://" + addr }

// quick is an election time with which etcd's shortest lease is 1 s.
const quick = 500 * time.Millisecond

func TestFaults(t *testing.T) {
	faults.Run(t, faults.Harness{
		Start: func(t testing.TB) (faults.Server, string) {
			e := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
			return e.Members[0], e.Addrs()
		},
		URL: url,
		// Each hold is two writes that a cluster agrees on.
		Goroutines: 3,
	})
}

// dial returns a client of etcd at some of its members.
func dial(t testing.TB, addrs string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(addrs, ","), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
