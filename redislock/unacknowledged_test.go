//go:build soak

package redislock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// slowNet is a Conn whose server has no replicas. WAIT says that one has acknowledged, but not while
// short. And while late, requests without a WAIT get no answer: they arrive when the test says so.
type slowNet struct {
	*respConn
	short, late bool
	held        []Command
}

func (s *slowNet) Do(ctx context.Context, commands []Command) []Reply {
	waits := false
	for i := range commands {
		if args := commands[i].Args; args[0] == "WAIT" {
			waits, args[2] = true, "1" // nobody will answer: do not wait for long
		}
	}
	if s.late && !waits {
		s.held = append(s.held, commands...)
		return slices.Repeat([]Reply{{Err: context.DeadlineExceeded}}, len(commands))
	}
	replies := s.respConn.Do(ctx, commands)
	for i := range commands {
		if commands[i].Args[0] == "WAIT" && !s.short {
			replies[i].Value = int64(1)
		}
	}
	return replies
}

// TestUnacknowledgedThenGranted: the replicas do not acknowledge a grant, and the network delays what the client sends
// then. The client asks again, is acknowledged and trusts the hold. Nothing that was sent before may end it (P1), so it
// asks under another owner.
func TestUnacknowledgedThenGranted(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	net := &slowNet{respConn: dialResp(t, server.Addr)}
	d, err := New(t.Context(), net, &Options{Replicas: 1})
	testserver.Must(t, err)
	defer d.Close()
	ask := d.(driver.Queuer).Enqueue
	request := driver.Request{Name: "orders/42", Owner: "a", TTL: 20 * time.Second}
	net.short, net.late = true, true
	_, err = ask(t.Context(), request)
	if short := (*UnacknowledgedError)(nil); !errors.As(err, &short) || !driver.Gone(err) {
		t.Fatalf("a grant that nobody has acknowledged: %v", err)
	}
	net.short, net.late = false, false
	if err := d.Release(t.Context(), []driver.Grant{{Request: request}})[0]; err != nil { // as package holdfast does
		t.Fatal(err)
	}
	request.Owner = "b"
	g, err := ask(t.Context(), request)
	net.Do(t.Context(), net.held)
	testserver.Must(t, err)
	if err := d.Renew(t.Context(), []driver.Grant{g})[0].Err; err != nil {
		t.Errorf("P1: a hold was ended by what its client had sent before the grant: %v", err)
	}
	if err := d.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Error(err)
	}
}
