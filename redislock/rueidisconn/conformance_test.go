package rueidisconn

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/conntest"
)

func TestConformance(t *testing.T)       { conform(t, false, redislock.Push, fromURL) }
func TestConformanceSpin(t *testing.T)   { conform(t, false, redislock.Spin, wrapped) }
func TestConformanceValkey(t *testing.T) { conform(t, true, redislock.Push, fromURL) }

func conform(t *testing.T, valkey bool, wait redislock.Wait, connect func(testing.TB, string) redislock.Conn) {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Valkey: valkey})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, connect(t, server.Addr), wait) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return dial(t, connect(t, proxy.Addr), wait), proxy
		},
		Restart:  func(testing.TB) { server.Kill(); server.Start() },
		Parallel: 8, // a case gives an acquire 30 ms to learn that a name is held
		Leaks:    serverLeaks,
	})
}

// serverLeaks are those of a server that was restarted: it ends after the run.
var serverLeaks = []goleak.Option{goleak.IgnoreAnyFunction("github.com/holdfastlock/holdfast/internal/testserver.(*process).watch")}

// fromURL returns what holdfast.Open uses.
func fromURL(t testing.TB, address string) redislock.Conn {
	t.Helper()
	c, err := Dial(&url.URL{Scheme: "redis", Host: address})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return c
}

// withLines returns one of a driver, whose requests go by their own lines already.
func withLines(t testing.TB, address string) redislock.Conn {
	t.Helper()
	return linesUp(t, fromURL(t, address))
}

// linesUp returns the Conn of a URL when it has its lines.
func linesUp(t testing.TB, conn redislock.Conn) lined {
	t.Helper()
	c := conn.(*opened)
	l := lined{c, c.Reserve()}
	for late := time.Now().Add(20 * time.Second); !l.up(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatal("the lines do not connect")
		}
	}
	return l
}

// lined is one that was asked for its line for renewals and releases.
type lined struct {
	*opened
	kept func(context.Context, []redislock.Command) []redislock.Reply
}

func (l lined) up() bool {
	ping := []redislock.Command{{Args: []string{"PING"}}}
	_, shared := l.shared.Load().Do(context.Background(), ping)
	_, reserved := l.opened.reserved.Do(context.Background(), ping)
	return shared && reserved
}

func (l lined) Reserve() func(context.Context, []redislock.Command) []redislock.Reply { return l.kept }

// wrapped returns one over a client with rueidis' own defaults, which send some
// commands again.
func wrapped(t testing.TB, address string) redislock.Conn {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, DisableCache: true})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return owner{Wrap(client), client}
}

// owner is a program that closes its client with the driver.
type owner struct {
	redislock.Conn
	client rueidis.Client
}

func (o owner) Close() error {
	err := o.Conn.Close()
	o.client.Close()
	return err
}

func (o owner) Reserve() func(context.Context, []redislock.Command) []redislock.Reply {
	return o.Conn.(redislock.Reserver).Reserve()
}

// dial returns a driver whose poll is short, so that dead waiters are waited for
// quickly.
func dial(t testing.TB, c redislock.Conn, wait redislock.Wait) driver.Driver {
	t.Helper()
	d, err := redislock.New(t.Context(), c, &redislock.Options{Poll: 400 * time.Millisecond, Wait: wait})
	if err != nil {
		t.Fatalf("redislock.New: %v", err)
	}
	return d
}

func TestConn(t *testing.T) {
	t.Run("URL", func(t *testing.T) { conntest.Run(t, fromURL) })
	t.Run("lines", func(t *testing.T) { conntest.Run(t, withLines) })
	t.Run("Wrap", func(t *testing.T) { conntest.Run(t, wrapped) })
}

func TestMoved(t *testing.T) { conntest.RunMoved(t, fromURL) }

func TestBusy(t *testing.T) { conntest.RunBusy(t, fromURL) }

func TestReactions(t *testing.T) {
	t.Run("URL", func(t *testing.T) { conntest.RunReactions(t, fromURL) })
	t.Run("lines", func(t *testing.T) { conntest.RunReactions(t, withLines) })
}

// TestConnectingForAnother: one request makes the connection for all, and is given up;
// another, whose context goes on, is carried out all the same.
func TestConnectingForAnother(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	connecting, given := make(chan struct{}), atomic.Bool{}
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr}, DisableCache: true, ForceSingleClient: true, DisableRetry: true,
		DialCtxFn: func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if given.CompareAndSwap(true, false) {
				close(connecting)
				<-ctx.Done()
				time.Sleep(20 * time.Millisecond) // so that this request ends while the other still waits
				return nil, ctx.Err()
			}
			return dialer.DialContext(ctx, "tcp", address)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, ping := Wrap(client), []redislock.Command{{Args: []string{"PING"}}}
	given.Store(true)
	c.Do(t.Context(), []redislock.Command{{Args: []string{"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"}}})
	hasty, cancel := context.WithCancel(t.Context())
	go func() {
		for hasty.Err() == nil { // the end of the old connection may come first
			c.Do(hasty, ping)
		}
	}()
	<-connecting
	done := make(chan error, 1)
	go func() { done <- c.Do(t.Context(), ping)[0].Err }()
	time.AfterFunc(50*time.Millisecond, cancel) // by then the other waits for the connection, too
	if err := <-done; err != nil {
		t.Errorf("a request failed because another, which made the connection, was given up: %v", err)
	}
}
