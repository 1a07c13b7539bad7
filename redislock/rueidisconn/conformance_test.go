package rueidisconn

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

func TestConformance(t *testing.T) { conform(t, false, redislock.Push, fromURL) }

func conform(t *testing.T, valkey bool, wait redislock.Wait, connect func(testing.TB, string) redislock.Conn) {
	server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true, Valkey: valkey})
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, connect(t, server.Addr), wait) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, server.Addr)
			return dial(t, connect(t, proxy.Addr), wait), proxy
		},
		Restart:    testserver.Long(nil, func(testing.TB) { server.Kill(); server.Start() }),
		Operations: testserver.Long(300, 2000),
		Parallel:   8, // a case gives an acquire 30 ms to learn that a name is held
		Untimed:    !testserver.Soak,
		Leaks:      serverLeaks,
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
	for late := time.Now().Add(time.Minute); !l.up(); time.Sleep(time.Millisecond) {
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
