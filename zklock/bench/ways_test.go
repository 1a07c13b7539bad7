//go:build soak

package bench

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	stockzk "github.com/go-zookeeper/zk"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/zklock"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// session is how long the sessions of all ways are: Holdfast's with its usual TTL.
const session = 30 * time.Second

// opener opens a client that takes and releases one path.
type opener func(path string) (pair func() error, closed func())

// result is what a burst has come to.
type result struct {
	shares []int         // how many pairs each client has ended
	spent  time.Duration // processor time of this process meanwhile; 0: the clients are not in it
}

// burst opens the clients and has them take and release for the window.
func burst(b *testing.B, w workload, open opener) result {
	b.Helper()
	pairs := make([]func() error, w.clients)
	for i := range pairs {
		pair, closed := open(w.path + "/" + strconv.Itoa(i%w.names))
		defer closed()
		pairs[i] = pair
	}
	runtime.GC() // what the last way has left is not this one's
	shares := make([]int, w.clients)
	var end time.Time
	var warm, done sync.WaitGroup
	warm.Add(w.clients)
	start := make(chan struct{})
	for i, pair := range pairs {
		done.Go(func() {
			err := pair() // its session and its parents are there
			warm.Done()
			<-start
			for err == nil {
				if err = pair(); time.Now().After(end) {
					break
				}
				shares[i]++
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	warm.Wait()
	before := processorTime(b)
	end = time.Now().Add(w.window)
	close(start)
	done.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return result{shares, processorTime(b) - before}
}

// processorTime returns how long processors have worked for this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// ours is a client of Holdfast.
func ours(b *testing.B, servers string) opener {
	return func(path string) (func() error, func()) {
		locks, err := holdfast.Open(b.Context(), "zk://"+servers)
		if err != nil {
			b.Fatal(err)
		}
		lock := locks.Mutex(strings.TrimPrefix(path, "/"), nil)
		return func() error {
			lease, err := lock.Acquire(b.Context())
			if err != nil {
				return err
			}
			return lease.Release()
		}, func() { locks.Close() }
	}
}

// raw creates and deletes a node, without which there is no lock.
func raw(b *testing.B, servers string) opener {
	return func(path string) (func() error, func()) {
		s, err := zk.Open(b.Context(), zk.Config{Servers: strings.Split(servers, ","), Timeout: session})
		if err != nil {
			b.Fatal(err)
		}
		for i, c := range path {
			if i > 0 && c == '/' {
				err := one(b.Context(), s, zk.Create(path[:i], nil, zk.OpenACL(), 0))
				if err != nil && !errors.Is(err, zk.NodeExists) {
					b.Fatal(err)
				}
			}
		}
		return func() error {
			if err := one(b.Context(), s, zk.Create(path, nil, zk.OpenACL(), zk.Ephemeral)); err != nil {
				return err
			}
			return one(b.Context(), s, zk.Delete(path, zk.AnyVersion))
		}, func() { s.Close(context.Background()) }
	}
}

// one does one operation.
func one(ctx context.Context, s *zk.Session, op zk.Op) error {
	replies, err := s.Do(ctx, op)
	if err == nil {
		err = replies[0].Err
	}
	return err
}

// stock is the Lock of go-zookeeper.
func stock(b *testing.B, servers string) opener {
	return func(path string) (func() error, func()) {
		conn := dial(b, servers)
		lock := stockzk.NewLock(conn, path, stockzk.WorldACL(stockzk.PermAll))
		return func() error {
			if err := lock.Lock(); err != nil {
				return err
			}
			return lock.Unlock()
		}, conn.Close
	}
}

// dial opens a session of go-zookeeper.
func dial(b *testing.B, servers string) *stockzk.Conn {
	b.Helper()
	conn, events, err := stockzk.Connect(strings.Split(servers, ","), session, stockzk.WithLogInfo(false), stockzk.WithLogger(silent{}))
	if err != nil {
		b.Fatal(err)
	}
	for patience := time.After(time.Minute); ; {
		select {
		case e := <-events:
			if e.State == stockzk.StateHasSession {
				return conn
			}
		case <-patience:
			b.Fatal("go-zookeeper opens no session")
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}
