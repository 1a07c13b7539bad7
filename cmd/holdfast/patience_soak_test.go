//go:build soak && linux

package main

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// pausable is a server that can stand still.
type pausable interface {
	Pause()
	Resume()
}

// pausableStores start servers, and return their URLs.
var pausableStores = map[string]func(*testing.T) (pausable, string){
	"PostgreSQL": func(t *testing.T) (pausable, string) {
		server := testserver.StartPostgres(t)
		return server, server.URL("postgres")
	},
	"MariaDB": func(t *testing.T) (pausable, string) {
		server := testserver.StartMariaDB(t)
		return server, server.URL()
	},
	"Redis": func(t *testing.T) (pausable, string) {
		server := testserver.StartRedis(t, testserver.RedisOptions{})
		return server, "redis://" + server.Addr
	},
	"etcd": func(t *testing.T) (pausable, string) {
		server := testserver.StartEtcd(t, testserver.EtcdOptions{})
		return server.Members[0], "etcd://" + server.Addrs()
	},
	"ZooKeeper": func(t *testing.T) (pausable, string) {
		server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{})
		return server.Members[0], "zk://" + server.Addrs() + "/app"
	},
}

// TestWaitCoversOpening: the time of -w is for opening the store too. The server stands still for longer than
// an attempt to open it takes, as one without -w shows.
func TestWaitCoversOpening(t *testing.T) {
	for name, start := range pausableStores {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			server, url := start(t)
			w.env = append(w.env, "HOLDFAST_STORE="+url)
			w.run(0, "run", "x", "--", "true")
			server.Pause()
			patient := w.start("run", "-w", "1m", "x", "--", "echo", "got it")
			w.run(69, "run", "-n", "x", "--", "true").expectErr("cannot open ")
			server.Resume()
			patient.ends(0)
			if patient.out.String() != "got it\n" || patient.err.String() != "" {
				t.Errorf("it wrote\n%s%s", patient.out.String(), patient.err.String())
			}
		})
	}
}

// TestWaitForAServerThatIsNotThere: that is told at once, whatever -w says.
func TestWaitForAServerThatIsNotThere(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	for _, url := range []string{"redis://" + addr, "postgres://" + addr + "/x", "mysql://" + addr + "/x", "etcd://" + addr, "zk://" + addr} {
		w.run(69, "--store", url, "run", "-w", "1h", "x", "--", "true").expectErr("connection refused")
	}
}

// TestFewConnections: processes that a server refuses because it has too many connections wait until others
// have ended.
func TestFewConnections(t *testing.T) {
	for name, url := range map[string]func(*testing.T) string{
		"PostgreSQL": func(t *testing.T) string { return testserver.StartPostgres(t, "max_connections=8").URL("postgres") },
		"MariaDB":    func(t *testing.T) string { return testserver.StartMariaDB(t, "--max-connections=10").URL() },
		"Redis": func(t *testing.T) string {
			return "redis://" + testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--maxclients", "12"}}).Addr
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.env = append(w.env, "HOLDFAST_STORE="+url(t))
			w.crowd(20)
		})
	}
}

// TestClaimThatEnds: the lock is handed to a waiter whose short claim ends before it is renewed. Nothing has
// run yet that could have lost the lock, so the waiter waits for it again.
func TestClaimThatEnds(t *testing.T) {
	w := newWorld(t)
	end := w.hold("x")
	p := w.start("--store", "late://"+w.locks, "run", "-w", "1m", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
	w.awaitQueue("x", 1)
	end()
	p.ends(0)
	if p.err.String() != "" {
		t.Errorf("it wrote\n%s", p.err.String())
	}
	atoi(t, strings.TrimSpace(p.out.String())) // it has run once
}

// lateStore is a store whose first renewal is not answered in time.
type lateStore struct {
	wrap.Forward
	once *sync.Once
}

func init() {
	driver.Register("late", func(ctx context.Context, u *url.URL) (driver.Driver, error) {
		file := *u
		file.Scheme = "file"
		d, err := driver.Open(ctx, &file)
		return lateStore{wrap.Forward{Driver: d}, &sync.Once{}}, err
	})
}

// Renew renews late.
func (l lateStore) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	l.once.Do(func() { <-ctx.Done() })
	return l.Forward.Renew(ctx, grants)
}

// crowd starts n processes that take one name in turn.
func (w *world) crowd(n int) {
	w.t.Helper()
	testserver.TakeTurn(w.t)
	log := w.path("log")
	var crowd []*process
	start := time.Now()
	for range n {
		crowd = append(crowd, w.start("run", "-w", "60s", "crowd", "--",
			"sh", "-c", `echo begin $$ >>"$0"; echo end $$ >>"$0"`, log))
	}
	for _, p := range crowd {
		select {
		case <-p.done:
		case <-time.After(time.Until(start.Add(crowdLimit))):
			w.t.Fatalf("after %v one is still waiting; it wrote\n%s", crowdLimit, p.err.String())
		}
		code := p.cmd.ProcessState.ExitCode()
		if code != 0 || p.out.String() != "" || strings.Contains(p.err.String(), "lost") {
			w.t.Errorf("exit code %d; it wrote\n%s%s", code, p.out.String(), p.err.String())
		}
	}
	w.t.Logf("%d processes in %v", n, time.Since(start).Round(time.Millisecond))
	text, err := os.ReadFile(log)
	if err != nil {
		w.t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 2*n {
		w.t.Fatalf("%d lines of %d commands", len(lines), n)
	}
	for i := 0; i < len(lines); i += 2 {
		if pid, ok := strings.CutPrefix(lines[i], "begin "); !ok || lines[i+1] != "end "+pid {
			w.t.Fatalf("P1: two commands ran at the same time:\n%s\n%s", lines[i], lines[i+1])
		}
	}
}

// crowdLimit is the time of -w, and some for starting and ending.
const crowdLimit = 90 * time.Second
