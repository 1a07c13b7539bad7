//go:build soak

package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
)

// slow is a server that replies to a command when it is told to, unless it is closed before.
type slow struct{ reply, closed chan struct{} }

func (s *slow) Do(context.Context, []redislock.Command) []redislock.Reply {
	select {
	case <-s.reply:
		return []redislock.Reply{{Value: "OK"}}
	case <-s.closed:
		return []redislock.Reply{{Err: context.Canceled}}
	}
}

func (s *slow) Close() error { close(s.closed); return nil }

func (s *slow) Subscribe(context.Context, string, func(string)) (func(), error) {
	panic("not called")
}

func (s *slow) Reserve() func(context.Context, []redislock.Command) []redislock.Reply { return s.Do }

func (s *slow) Session(context.Context, string, bool, func(string)) (subscription.Session, error) {
	panic("not called")
}

func (s *slow) ListenSharded(context.Context, func(channel, message string)) (redislock.Listening, error) {
	panic("not called")
}

// TestDrain: a server loses its slots while a command is under way there. Its reply is still taken, which may
// be the redirection; but a server that does not reply is given up.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, replies := range map[string]bool{"it replies": true, "it is silent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				alive, stop := context.WithCancel(t.Context())
				s := &slow{make(chan struct{}), make(chan struct{})}
				c := &Conn{alive: alive, stop: stop, nodes: map[string]*node{}, o: Options{
					Open: func(string, *Dialed) (Server, error) { return s, nil },
				}}
				defer c.Close()
				got := make(chan redislock.Reply, 1)
				go func() {
					got <- c.exchange(t.Context(), "old:1", []redislock.Command{{Args: []string{"GET"}}}, (*node).shared)[0]
				}()
				synctest.Wait()
				c.refreshing = true // it asks nobody
				c.table.Store(&table{owners: []string{"new:1"}})
				c.prune()
				time.Sleep(silentFor / 2)
				if replies {
					close(s.reply)
				} else {
					time.Sleep(silentFor)
				}
				if r := <-got; (r.Err == nil) != replies {
					t.Errorf("the reply is %+v", r)
				}
				<-s.closed
			})
		})
	}
}
