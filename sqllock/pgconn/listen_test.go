//go:build soak

package pgconn

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/sqllock"
)

// lines takes what is logged, line by line.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func (l lines) await(t *testing.T, text string) {
	t.Helper()
	for timeout := time.After(20 * time.Second); ; {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			t.Fatalf("nothing was logged that says %q", text)
		}
	}
}

// pools makes pools of a role that may log in for now, and locks over them.
type pools struct {
	*testing.T
	admin  *sql.DB
	config *pgx.ConnConfig
	log    lines
	user   atomic.Value // who the pools log in as from now on
}

func newPools(t *testing.T) *pools {
	server := testserver.StartPostgres(t)
	p := &pools{T: t, admin: openDB(t, server), log: make(lines, 100)}
	for _, role := range []string{"one", "two"} {
		exec(t, p.admin, "CREATE ROLE "+role+" LOGIN")
		exec(t, p.admin, "GRANT ALL ON SCHEMA public TO "+role)
	}
	var err error
	if p.config, err = pgx.ParseConfig(server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	p.config.User = "one"
	p.user.Store("one")
	return p
}

// open returns locks whose poll is longer than the test.
func (p *pools) open() *holdfast.Client {
	p.Helper()
	db := stdlib.OpenDB(*p.config, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		c.User = p.user.Load().(string)
		return nil
	}))
	p.Cleanup(func() { db.Close() })
	d, err := New(p.Context(), db, &sqllock.Options{Poll: time.Minute, Log: slog.New(slog.NewTextHandler(p.log, nil))})
	if err != nil {
		p.Fatal(err)
	}
	c, err := holdfast.New(d, nil)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { c.Close() })
	return c
}

// dropListener lets role one not log in any more, and ends the connection that listens.
func (p *pools) dropListener() {
	p.Helper()
	exec(p.T, p.admin, "ALTER ROLE one NOLOGIN")
	exec(p.T, p.admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
}

// handOver lets b wait for a name that a releases. It must not wait for its poll.
func (p *pools) handOver(a, b *holdfast.Client) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 20*time.Second)
	defer cancel()
	first, err := a.Mutex("n", nil).Acquire(ctx)
	if err != nil {
		p.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() {
		next, err := b.Mutex("n", nil).Acquire(ctx)
		if err == nil {
			err = next.Release()
		}
		waiting <- err
	}()
	for info := (holdfast.Info{}); len(info.Waiters) == 0; {
		if info, err = a.Inspect(ctx, "n"); err != nil {
			p.Fatal(err)
		}
	}
	if err := first.Release(); err != nil {
		p.Fatal(err)
	}
	if err := <-waiting; err != nil {
		p.Errorf("P7: a waiter that gets no notification is not polled for: %v", err)
	}
}

// TestListenerLost: the connection that listens is lost and cannot be made again. The driver
// logs that, and polls for its waiters until there is a connection again.
func TestListenerLost(t *testing.T) {
	p := newPools(t)
	a, b := p.open(), p.open()
	p.handOver(a, b)
	p.dropListener()
	p.log.await(t, "do not arrive any more")
	p.handOver(a, b)
	exec(t, p.admin, "ALTER ROLE one LOGIN")
	p.log.await(t, "arrive again")
	p.handOver(a, b)
}

// TestListenerFollowsThePool: the pool logs in anew with what BeforeConnect says then, as
// with tokens that end; so does the connection that listens.
func TestListenerFollowsThePool(t *testing.T) {
	p := newPools(t)
	a, b := p.open(), p.open()
	exec(t, p.admin, "ALTER ROLE two SUPERUSER") // the tables are role one's
	p.user.Store("two")
	p.dropListener()
	for end := time.Now().Add(20 * time.Second); ; {
		var user string
		err := p.admin.QueryRow("SELECT usename FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").Scan(&user)
		if err == nil && user == "two" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%q listens (%v), though the pool connects as another now", user, err)
		}
	}
	p.handOver(a, b)
}

// TestDoubtedListener: drivers come while notifications arrive all the time, as for a crowd. Each makes
// the hub ask its server whether that takes writes, and must not wait for the answer to a question
// that the hub has forgotten over the notifications that came with the one before.
func TestDoubtedListener(t *testing.T) {
	server := testserver.StartPostgres(t)
	db := openDB(t, server)
	config, err := configOf(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	listening := func() (channel string, stop func()) {
		t.Helper()
		channel, stop, err := libraryFor(config).Listen(t.Context(), func(string) {})
		if err != nil {
			t.Fatalf("a driver that comes among notifications does not get any: %v", err)
		}
		return channel, stop
	}
	channel, stop := listening()
	defer stop()
	ctx, enough := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer enough()
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := db.Exec("SELECT pg_notify($1, '')", channel); err != nil {
				t.Error(err)
			}
		}
	})
	for range 200 {
		_, stop := listening()
		stop()
	}
}

// TestListenerOfNobody: New leaves no connection that listens if its context ends when the
// greeting arrives. The two happen at the same time, so New may see either first.
func TestListenerOfNobody(t *testing.T) {
	server := testserver.StartPostgres(t)
	db := openDB(t, server)
	config, err := configOf(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		library := libraryFor(config)
		listen := library.Listen
		library.Listen = func(ctx context.Context, receive func(string)) (string, func(), error) {
			return listen(ctx, func(payload string) {
				if strings.HasPrefix(payload, "hello ") {
					cancel()
				}
				receive(payload)
			})
		}
		if d, err := sqllock.New(ctx, db, sqllock.Postgres, library, nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("P11: New, whose context ended, returned %v, %v", d, err)
		}
		hubs.Lock()
		n := len(hubs.m)
		hubs.Unlock()
		if n > 0 {
			t.Fatal("P9: a driver that was not made listens on")
		}
	}
}
