package rueidisconn

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

var ping = []redislock.Command{{Args: []string{"PING"}}}

// alone returns a connection whose lone one is open.
func alone(t *testing.T, server *testserver.Redis) *conn {
	t.Helper()
	c := fromURL(t, server.Addr).(*conn)
	becomeAlone(t, c)
	return c
}

func becomeAlone(t *testing.T, c *conn) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		if r := c.Do(t.Context(), ping)[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		c.lone.mu.Lock()
		open := c.lone.client != nil
		c.lone.mu.Unlock()
		if open {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a caller without company got no connection of its own")
		}
	}
}

func leaks(t *testing.T) {
	goleak.VerifyNone(t, goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch"))
}

// The end of a lone caller's context is heard, whatever kind it is, and costs
// nobody else anything.
func TestLoneHangsUp(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	defer leaks(t)
	for name, end := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		}, context.DeadlineExceeded},
		"cancellation": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(50*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			c := alone(t, server)
			defer c.Close()
			server.Pause()
			ctx, cancel := end.ctx(t.Context())
			defer cancel()
			hasty, patient := make(chan error, 1), make(chan error, 1)
			go func() { hasty <- c.Do(ctx, ping)[0].Err }()
			for c.busy.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			go func() { patient <- c.Do(t.Context(), ping)[0].Err }()
			if err := <-hasty; !errors.Is(err, end.want) {
				t.Errorf("the request ended with %v", err)
			}
			server.Resume()
			if err := <-patient; err != nil {
				t.Errorf("the other request ended with %v", err)
			}
			becomeAlone(t, c) // again
		})
	}
}

// A connection that the server has closed fails one request at most.
func TestLoneIsReplaced(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	defer leaks(t)
	c := alone(t, server)
	defer c.Close()
	server.Kill()
	server.Start()
	failed := 0
	for range 100 {
		if c.Do(t.Context(), ping)[0].Err != nil {
			failed++
		}
	}
	if failed > 2 { // one on either connection
		t.Errorf("%d requests failed after the server was back", failed)
	}
	becomeAlone(t, c)
}

// Close ends what is under way, and leaves nothing behind that is being opened.
func TestLoneCloses(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	defer leaks(t)
	for range 20 {
		c := fromURL(t, server.Addr).(*conn)
		for range enough + 1 {
			c.Do(t.Context(), ping)
		}
		c.Close() // it is being opened, perhaps
	}
	c := alone(t, server)
	server.Pause()
	var hung sync.WaitGroup
	hung.Go(func() {
		if err := c.Do(t.Context(), ping)[0].Err; err == nil {
			t.Error("a request was answered by a server that stands still")
		}
	})
	for c.busy.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	c.lone.close()
	hung.Wait()
	server.Resume()
	c.Close()
}

// A context's end is heard also while the connection is made anew, by the request
// that needs it first, by others, and by a lone one.
func TestSilentServer(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *conn){
		"pipeline": func(*testing.T, *conn) {}, "lone": becomeAlone,
	} {
		t.Run(name, func(t *testing.T) {
			server := testserver.StartRedis(t, testserver.RedisOptions{})
			c := fromURL(t, server.Addr).(*conn)
			defer c.Close()
			c.lone.option.Dialer.KeepAlive = 10 * time.Millisecond // it finds out soon
			before(t, c)
			server.Kill()
			silent, err := net.Listen("tcp", server.Addr) // accepts, and says nothing
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			time.Sleep(2 * provenFor) // the connection is known to be gone, or not proven
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				ended := make(chan error, 2)
				for range cap(ended) {
					go func() { ended <- c.Do(ctx, ping)[0].Err }()
				}
				for range cap(ended) {
					select {
					case err := <-ended:
						if err == nil {
							t.Error("a silent server has answered")
						}
					case <-time.After(dialTimeout - time.Second):
						t.Fatal("a request does not hear of the end of its context")
					}
				}
				cancel()
			}
		})
	}
}
