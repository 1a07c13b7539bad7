//go:build soak

package faulttest

import (
	"errors"
	"strconv"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// TestClusterReplicas: in a cluster the replica of the name's own master must acknowledge a lock, also when
// the request was redirected; other masters' names are not touched by a replica that stands still.
func TestClusterReplicas(t *testing.T) {
	t.Parallel()
	servers := testserver.StartCluster(t, testserver.ClusterOptions{Replicas: true})
	c := openURL(t, clusterURL(servers)+"?hf.replicas=1")
	try := func(name string) error {
		lease, err := c.Mutex(name, nil).TryAcquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		return err
	}
	unacknowledged := func(err error) bool {
		_, is := errors.AsType[*redislock.UnacknowledgedError](err)
		return is
	}
	first, second := servers.Servers[0], servers.Servers[1]
	name, other := servers.KeyOf(first), servers.KeyOf(second)
	until(t, "replicas acknowledge", func() bool { return try(name) == nil && try(other) == nil })

	servers.ReplicaOf(first).Pause()
	if err := try(name); !unacknowledged(err) {
		t.Errorf("the replica of its master stands still: %v", err)
	}
	if err := try(other); err != nil {
		t.Errorf("the replica of another master stands still: %v", err)
	}
	servers.ReplicaOf(first).Resume()
	until(t, "the replica goes on", func() bool { return try(name) == nil })
	kept := acquire(t, c, name, &holdfast.Options{RenewEvery: -1})

	slot, err := strconv.Atoi(first.Ask("CLUSTER", "KEYSLOT", name))
	if err != nil {
		t.Fatal(err)
	}
	servers.ReplicaOf(second).Pause()
	servers.Move(slot, first, second, 0)
	if err := kept.Renew(t.Context()); !unacknowledged(err) {
		t.Errorf("the name has moved to a master whose replica stands still: a renewal: %v", err)
	}
	servers.ReplicaOf(second).Resume()
	until(t, "the replica goes on", func() bool { return kept.Renew(t.Context()) == nil })
	if err := kept.Release(); err != nil {
		t.Error(err)
	}
}
