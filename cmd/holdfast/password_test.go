//go:build soak && linux

package main

import (
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestWrongPasswordOfEtcd: what the server refuses is no wrong usage.
func TestWrongPasswordOfEtcd(t *testing.T) {
	w := newWorld(t)
	addr := testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	_, err1 := root.UserAdd(t.Context(), "root", "secret")
	_, err2 := root.UserGrantRole(t.Context(), "root", "root")
	_, err3 := root.AuthEnable(t.Context())
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	w.run(0, "--store", "etcd://root:secret@"+addr, "run", "x", "--", "true")
	w.run(69, "--store", "etcd://root:wrong@"+addr, "run", "x", "--", "true").expectErr("password")
	w.run(69, "--store", "etcd://"+addr, "run", "x", "--", "true")
}
