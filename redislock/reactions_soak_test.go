//go:build soak

package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/conntest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// connect returns what holdfast.Open uses for a server.
func connect(t testing.TB, address string) redislock.Conn {
	t.Helper()
	c, err := redislock.Dial(context.Background(), &url.URL{Scheme: "redis", Host: address})
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	return c
}

// trouble is a server that refuses.
type trouble struct {
	code  string
	args  []string // of the server
	cause func(*admin)
	cure  func(*admin)
}

// admin is an operator with a connection of his own.
type admin struct {
	testing.TB
	redislock.Conn
	server *testserver.Redis
}

func (a *admin) try(args ...string) redislock.Reply {
	return a.Do(context.Background(), []redislock.Command{{Args: args}})[0]
}

func (a *admin) do(args ...string) any {
	a.Helper()
	r := a.try(args...)
	if r.Err != nil {
		a.Fatalf("%q: %v", args, r.Err)
	}
	return r.Value
}

// begin sends a command that keeps the server busy, on a connection of its own,
// and does not wait for it.
func (a *admin) begin(command string) {
	a.Helper()
	conn, err := net.Dial("tcp", a.server.Addr)
	if err == nil {
		a.Cleanup(func() { conn.Close() })
		_, err = conn.Write([]byte(command + "\r\n"))
	}
	if err != nil {
		a.Fatal(err)
	}
}

// until repeats a command until it is answered so, or refused so.
func (a *admin) until(want string, args ...string) {
	a.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		r := a.try(args...)
		if strings.Contains(fmt.Sprint(r.Value, r.Err), want) {
			return
		}
		if time.Now().After(end) {
			a.Fatalf("%q: %v, %v; never %q", args, r.Value, r.Err, want)
		}
	}
}

var troubles = []trouble{{
	code:  "READONLY",
	cause: func(a *admin) { a.do("REPLICAOF", "127.0.0.1", "1") },
	cure:  func(a *admin) { a.do("REPLICAOF", "NO", "ONE") },
}, {
	code: "MISCONF", args: []string{"--save", "3600 1"},
	cause: func(a *admin) {
		// The file is in the way of a directory: not even root can write it.
		if err := os.Mkdir(filepath.Join(filepath.Dir(a.server.Socket), "dump.rdb"), 0o700); err != nil {
			a.Fatal(err)
		}
		a.do("BGSAVE")
		a.until("rdb_last_bgsave_status:err", "INFO", "persistence")
	},
	cure: func(a *admin) {
		if err := os.Remove(filepath.Join(filepath.Dir(a.server.Socket), "dump.rdb")); err != nil {
			a.Fatal(err)
		}
		a.do("BGSAVE")
		a.until("rdb_last_bgsave_status:ok", "INFO", "persistence")
	},
}, {
	code: "BUSY", args: []string{"--busy-reply-threshold", "10"},
	cause: func(a *admin) {
		a.begin(`EVAL "while true do end" 0`)
		a.until("BUSY", "PING")
	},
	cure: func(a *admin) { a.until("OK", "SCRIPT", "KILL"); a.until("PONG", "PING") },
}, {
	code:  "NOPERM",
	cause: func(a *admin) { a.do("ACL", "SETUSER", "default", "-eval", "-evalsha", "-zrem") },
	cure:  func(a *admin) { a.do("ACL", "SETUSER", "default", "+@all") },
}}

// listener is a Conn that counts the refusals of each code.
type listener struct {
	redislock.Conn
	mu   sync.Mutex
	seen map[string]int
}

func (l *listener) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	replies := l.Conn.Do(ctx, commands)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range replies {
		if refused, ok := r.Err.(*redislock.ServerError); ok {
			l.seen[refused.Code()]++
		}
	}
	return replies
}

func (l *listener) count(code string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen[code]
}

func newLocks(t testing.TB, conn redislock.Conn, o holdfast.ClientOptions) *holdfast.Client {
	t.Helper()
	d, err := redislock.New(t.Context(), conn, &redislock.Options{Poll: 50 * time.Millisecond})
	testserver.Must(t, err)
	locks, err := holdfast.New(d, &o)
	testserver.Must(t, err)
	t.Cleanup(func() { locks.Close() })
	return locks
}

// TestReactions: what locks do when the server refuses.
func TestReactions(t *testing.T) {
	for _, tr := range troubles {
		t.Run(tr.code, func(t *testing.T) { t.Parallel(); refuses(t, &tr) })
	}
}

// refuses: a waiter goes on waiting, and gets the lock when the trouble is over; a new Acquire returns
// the refusal at once, with what to do about it; a holder is in doubt, and has not lost its lease.
func refuses(t *testing.T, tr *trouble) {
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: tr.args})
	a := &admin{TB: t, Conn: connect(t, server.Addr), server: server}
	defer a.Close()
	conn := &listener{Conn: connect(t, server.Addr), seen: map[string]int{}}
	waits := make(chan struct{}, 1)
	locks := newLocks(t, conn, holdfast.ClientOptions{Events: holdfast.Events{Waiting: func(holdfast.Event) { waits <- struct{}{} }}})
	other := newLocks(t, connect(t, server.Addr), holdfast.ClientOptions{})
	held, err := locks.Mutex("held", nil).Acquire(t.Context())
	testserver.Must(t, err)
	wanted, err := other.Mutex("wanted", nil).Acquire(t.Context())
	testserver.Must(t, err)
	got := make(chan error, 1)
	go func() {
		lease, err := locks.Mutex("wanted", nil).Acquire(t.Context())
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	<-waits

	tr.cause(a)
	before := conn.count(tr.code)
	_, err = locks.Mutex("fresh", nil).TryAcquire(t.Context())
	if refused := (*redislock.ServerError)(nil); !errors.As(err, &refused) || refused.Code() != tr.code {
		t.Errorf("the first attempt returned %v", err)
	} else if explained := redislock.Explain(refused).Error(); explained == refused.Error() || !strings.Contains(err.Error(), explained) {
		t.Errorf("%v does not say what to do", err)
	}
	if errors.Is(err, holdfast.ErrUncertain) {
		t.Errorf("what was refused is called uncertain: %v", err)
	}
	if err := held.Renew(t.Context()); err == nil || errors.Is(err, holdfast.ErrLost) || errors.Is(err, holdfast.ErrNotHeld) {
		t.Errorf("a renewal that was refused returned %v", err)
	}
	if err := held.Err(); err != nil {
		t.Errorf("a lease whose renewal was refused says %v", err)
	}
	for end := time.Now().Add(20 * time.Second); conn.count(tr.code) < before+3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the waiter does not ask again: refused %d times", conn.count(tr.code)-before)
		}
	}
	select {
	case err := <-got:
		t.Fatalf("the waiter gave up: %v", err)
	default:
	}

	tr.cure(a)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // a replica's connections are made anew
		if err = held.Renew(t.Context()); err == nil {
			break
		}
		if time.Now().After(end) || errors.Is(err, holdfast.ErrLost) {
			t.Fatalf("after the trouble a renewal returned %v", err)
		}
	}
	if err := wanted.Release(); err != nil {
		t.Errorf("after the trouble a release returned %v", err)
	}
	if err := <-got; err != nil {
		t.Errorf("after the trouble the waiter got %v", err)
	}
	if err := held.Release(); err != nil {
		t.Errorf("after the trouble a release returned %v", err)
	}
	if info, err := other.Inspect(t.Context(), "fresh"); err != nil || !info.Idle() {
		t.Errorf("the refused attempt has left %+v, %v", info, err)
	}
}

// TestKeptFree: all connections that are not for renewals and releases are full of requests that get no reply: a
// lease is renewed and released all the same (P2).
func TestKeptFree(t *testing.T) {
	const fill, marker = 64, "no reply to this"
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	proxy := chaos.StartProxy(t, server.Addr)
	conn := connect(t, proxy.Addr)
	locks := newLocks(t, conn, holdfast.ClientOptions{})
	lease, err := locks.Mutex("kept", &holdfast.Options{TTL: 5 * time.Second}).Acquire(t.Context())
	testserver.Must(t, err)
	proxy.Hold(chaos.ToClient, marker)
	filling, empty := context.WithCancel(t.Context())
	var filled sync.WaitGroup
	for range fill {
		filled.Go(func() { conn.Do(filling, []redislock.Command{{Args: []string{"ECHO", marker}}}) })
	}
	short := func(do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return do(ctx)
	}
	acquire := func(ctx context.Context) error {
		lease, err := locks.Mutex("name", nil).Acquire(ctx)
		if err == nil {
			err = lease.Release()
		}
		return err
	}
	for short(acquire) == nil {
	} // until all are full
	if err := short(lease.Renew); err != nil {
		t.Errorf("P2: a renewal waits behind other requests: %v", err)
	}
	if err := lease.Release(); err != nil {
		t.Errorf("a release waits behind other requests: %v", err)
	}
	proxy.Heal()
	empty()
	filled.Wait()
}

func TestConn(t *testing.T) { conntest.Run(t, connect) }
