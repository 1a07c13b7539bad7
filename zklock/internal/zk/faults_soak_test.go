//go:build soak

package zk

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// The connection ends at each point of a create's exchange. What the caller is told is true.
func TestConnectionCutAtEachPoint(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: time.Second})
	proxy := chaos.StartProxy(t, z.Members[0].Addr)
	s := open(t, Config{Servers: []string{proxy.Addr}})
	other := open(t, Config{Servers: []string{z.Members[0].Addr}})
	exists := func(path string) bool {
		r, err := other.Do(within(t), Exists(path, nil))
		must(t, err)
		return r[0].Err == nil
	}

	// Before it is written: the call waits, and who does not wait is told that nothing was sent.
	proxy.Cut()
	for s.Suspended() == nil {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	r, err := s.Do(ctx, Create("/never", nil, nil, 0))
	if !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(r[0].Err, ErrNotSent) || !strings.Contains(err.Error(), proxy.Addr) {
		t.Errorf("without a connection: %v", err)
	}
	waits := s.send(Create("/waits", nil, nil, 0))
	proxy.Heal()
	if _, err := outcome(t, waits); err != nil || !sent(waits) {
		t.Errorf("what waited for a connection: %v", err)
	}
	if exists("/never") || !exists("/waits") {
		t.Error("what was withdrawn was done, or what waited was not")
	}

	// Written, and lost on its way: unknown. Here it was not done, also not later.
	proxy.HoldRequests()
	calls := s.send(Create("/lost", nil, nil, 0))
	for !sent(calls) {
		time.Sleep(time.Millisecond)
	}
	proxy.Cut()
	if r, err := outcome(t, calls); err != ErrConnectionLoss || r[0].Err != ErrConnectionLoss {
		t.Errorf("lost on its way: %v", err)
	}
	proxy.Heal()
	look(t, s, Exists("/", nil))
	if exists("/lost") {
		t.Error("done, although it was lost on its way")
	}

	// Done, and the answer lost: unknown to the caller as well.
	proxy.HoldReplies()
	calls = s.send(Create("/done", nil, nil, Ephemeral), Create("/done2", nil, nil, Ephemeral))
	for !exists("/done2") {
		time.Sleep(time.Millisecond)
	}
	proxy.Cut()
	if _, err := outcome(t, calls); err != ErrConnectionLoss {
		t.Errorf("the answer lost: %v", err)
	}
	proxy.Heal()
	look(t, s, Exists("/done", nil)) // the same session has it still

	// The caller does not wait for the answer: the outcome is unknown, and comes later.
	proxy.HoldReplies()
	calls = s.send(Create("/later", nil, nil, 0))
	for !exists("/later") {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel = context.WithTimeout(within(t), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Do(ctx, Exists("/", nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer: %v", err)
	}
	proxy.Heal()
	if r, err := outcome(t, calls); err != nil || r[0].Path != "/later" {
		t.Errorf("the answer came: %v", err)
	}
}

// What a dead connection still brings to the server is not done once the session has answered a
// later write on another connection.
func TestLateRequestsAreNotDone(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) {
		t.Parallel()
		z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: 500 * time.Millisecond})
		lateRequests(t, z, z.Members[0], z.Members[0], false)
	})
	t.Run("from a follower to another server", func(t *testing.T) {
		t.Parallel()
		z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: 500 * time.Millisecond})
		f := z.Followers()
		lateRequests(t, z, f[0], f[1], true)
		lateRequests(t, z, f[0], z.Leader(), true)
		lateRequests(t, z, z.Leader(), f[0], true)
	})
}

func lateRequests(t *testing.T, z *testserver.ZooKeeper, from, to *testserver.ZooKeeperMember, any bool) {
	t.Helper()
	proxy := chaos.StartProxy(t, from.Addr)
	var moved atomic.Bool
	s := open(t, Config{Servers: []string{"server:1"}, AnyServer: any, Timeout: 3 * time.Second, Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		addr := proxy.Addr
		if moved.Load() {
			addr = to.Addr
		}
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}})
	do(t, s, Create("/first", nil, nil, Ephemeral))
	proxy.HoldRequests()
	moved.Store(true)
	late := s.send(Create("/late", nil, nil, 0), Create("/late2", nil, nil, Ephemeral))
	if _, err := outcome(t, late); err != ErrConnectionLoss {
		t.Fatalf("the late request: %v", err)
	}
	do(t, s, SetData("/first", nil, AnyVersion)) // at the other server
	proxy.Heal()
	time.Sleep(200 * time.Millisecond) // the late request arrives
	other := open(t, Config{Servers: []string{to.Addr}, AnyServer: true})
	for _, s := range []*Session{s, other} {
		do(t, s, SetData("/", nil, AnyVersion))
		r, err := s.Do(within(t), Exists("/late", nil), Exists("/late2", nil), Exists("/first", nil))
		if err != nil || r[0].Err != NoNode || r[1].Err != NoNode || r[2].Err != nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if err := s.Close(within(t)); err != nil {
		t.Error(err)
	}
}

// The leader takes no clients.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	z := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: 3, TickTime: 250 * time.Millisecond, NoLeaderClients: true})
	c := Config{Servers: strings.Split(z.Addrs(), ","), Timeout: 2 * time.Second}
	if _, err := Open(within(t), c); !errors.Is(err, ErrNoLeader) {
		t.Errorf("a leader that takes no clients: %v", err)
	}
	c.AnyServer = true
	do(t, open(t, c), Create("/mine", nil, nil, Ephemeral))
}
