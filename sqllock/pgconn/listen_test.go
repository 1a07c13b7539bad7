//go:build soak

package pgconn

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
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

// pools makes locks over pools of a role that may log in for now.
type pools struct {
	*testing.T
	admin *sql.DB
	url   string
	log   lines
}

func newPools(t *testing.T) *pools {
	server := testserver.StartPostgres(t)
	p := &pools{T: t, admin: openDB(t, server), log: make(lines, 100)}
	p.url = strings.Replace(server.URL("postgres"), "postgres@", "one@", 1)
	exec(t, p.admin, "CREATE ROLE one LOGIN")
	exec(t, p.admin, "GRANT ALL ON SCHEMA public TO one")
	return p
}

// open returns locks whose poll is longer than the test.
func (p *pools) open() *holdfast.Client {
	p.Helper()
	db, err := sql.Open("pgx", p.url)
	must(p, err)
	p.Cleanup(func() { db.Close() })
	d, err := New(p.Context(), db, &sqllock.Options{Poll: time.Minute, Log: slog.New(slog.NewTextHandler(p.log, nil))})
	must(p, err)
	c, err := holdfast.New(d, nil)
	must(p, err)
	p.Cleanup(func() { c.Close() })
	return c
}

// dropListener lets role one not log in any more, and ends the connection that listens.
func (p *pools) dropListener() {
	p.Helper()
	exec(p.T, p.admin, "ALTER ROLE one NOLOGIN")
	exec(p.T, p.admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
}

// TestListenerLost: the connection that listens is lost and cannot be made again. The driver
// logs that, and polls for its waiters until there is a connection again.
func TestListenerLost(t *testing.T) {
	p := newPools(t)
	a, b := p.open(), p.open()
	handOver(t, []*holdfast.Client{a, b})
	p.dropListener()
	p.log.await(t, "do not arrive")
	handOver(t, []*holdfast.Client{a, b})
	exec(t, p.admin, "ALTER ROLE one LOGIN")
	p.log.await(t, "arrive again")
	handOver(t, []*holdfast.Client{a, b})
}

// TestNotifications: a notification goes to the first waiter only, and to nobody if nobody
// waits, over one connection for all drivers of the process.
func TestNotifications(t *testing.T) {
	server := testserver.StartPostgres(t)
	admin := openDB(t, server)
	listeners := func() (n int) {
		must(t, admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND pid <> pg_backend_pid()").Scan(&n))
		return n
	}
	var mu sync.Mutex
	payloads := map[string]bool{}
	var up sync.WaitGroup
	var locks []*holdfast.Client
	for range 4 {
		up.Add(1)
		subscribed := sync.OnceFunc(up.Done)
		db := openDB(t, server)
		library := libraryFor(asPool(db))
		learn := library.Learn
		library.Learn = func(ctx context.Context, conn *sql.Conn, l *sqllock.Library) error {
			err := learn(ctx, conn, l)
			listen := l.Listen
			l.Listen = func(receive func(string)) (string, func()) {
				return listen(func(payload string) {
					receive(payload)
					if payload == "" {
						subscribed()
						return
					}
					mu.Lock()
					payloads[payload] = true
					mu.Unlock()
				})
			}
			return err
		}
		d, err := sqllock.New(t.Context(), db, sqllock.Postgres, library, &sqllock.Options{Poll: time.Minute})
		must(t, err)
		c, err := holdfast.New(d, nil)
		must(t, err)
		locks = append(locks, c)
	}
	up.Wait()
	if n := listeners(); n != 1 {
		t.Errorf("P9: four drivers of a process listen on %d connections; one is enough", n)
	}
	handOver(t, locks)
	mu.Lock()
	if n := len(payloads); n != 3 {
		t.Errorf("three hand-offs and a release for which nobody waited made %d notifications; three are right", n)
	}
	mu.Unlock()
	for _, c := range locks {
		must(t, c.Close())
	}
	for end := time.Now().Add(time.Minute); listeners() > 0; {
		if time.Now().After(end) {
			t.Fatalf("P9: %d connections listen when all drivers are closed", listeners())
		}
	}
}

// handOver lets the first client release a lock, and then each of the others, which wait for it.
func handOver(t *testing.T, locks []*holdfast.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lease, err := locks[0].Mutex("n", nil).Acquire(ctx)
	must(t, err)
	leases := make(chan *holdfast.Lease, len(locks))
	for i, l := range locks[1:] {
		go func() {
			lease, err := l.Mutex("n", nil).Acquire(ctx)
			if err != nil {
				t.Errorf("P7: a waiter: %v", err)
			}
			leases <- lease
		}()
		for info, _ := locks[0].Inspect(ctx, "n"); len(info.Waiters) != i+1 && ctx.Err() == nil; info, _ = locks[0].Inspect(ctx, "n") {
		}
	}
	for range locks[1:] {
		if err := lease.Release(); err != nil {
			t.Fatalf("P4: %v", err)
		}
		if lease = <-leases; lease == nil {
			t.FailNow()
		}
	}
	if err := lease.Release(); err != nil {
		t.Fatalf("P4: %v", err)
	}
}
