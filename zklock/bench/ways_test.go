//go:build soak

package bench

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	stockzk "github.com/go-zookeeper/zk"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	_ "github.com/holdfastlock/holdfast/zklock"
)

// session is how long the sessions of all ways are: Holdfast's with its usual TTL.
const session = 30 * time.Second

// opener opens a client that takes and releases one path.
type opener func(path string) (pair func() error, closed func())

// burst opens the clients and has them take and release for the window. It returns how many pairs each has ended.
func burst(b *testing.B, w workload, open opener) (shares []int) {
	b.Helper()
	pairs := make([]func() error, w.clients)
	for i := range pairs {
		pair, closed := open(w.path + "/" + strconv.Itoa(i%w.names))
		defer closed()
		pairs[i] = pair
	}
	runtime.GC() // what the last way has left is not this one's
	shares = make([]int, w.clients)
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
	end = time.Now().Add(w.window)
	close(start)
	done.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return shares
}

// ours is a client of Holdfast.
func ours(b *testing.B, servers string) opener {
	return func(path string) (func() error, func()) {
		locks, err := holdfast.Open(b.Context(), "zk://"+servers)
		testserver.Must(b, err)
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
	testserver.Must(b, err)
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
