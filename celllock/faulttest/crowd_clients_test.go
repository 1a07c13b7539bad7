//go:build soak

package faulttest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/drivertest/faults"
)

// crowdEnv is the environment variable with the settings of a process of clients.
const crowdEnv = "HOLDFAST_TEST_CROWD"

// settings say what the clients of a process do. Each client has a connection and a session of its own.
type settings struct {
	URL       string
	Process   int    // its number among several
	Group     string // begins the names of locks that keepers have
	Keepers   int    // clients that keep a lock of their own
	KeptTTL   time.Duration
	LockDelay time.Duration // of keepers
	Users     int           // clients that take one of the names again and again
	First     int           // the number of the first of them
	Names     int
	UsedTTL   time.Duration
	Fenced    bool // the first users of some processes write a file under the lock
	Writes    int  // of the files that the process's writer writes; 0: it has none
	Watches   bool // the process watches the files
}

// report is what a process of clients answers to a command.
type report struct {
	Wrong []string // broken promises
	Kept  []kept
	Holds []faults.Hold // that have ended since the last report
	Files fileReport
}

// kept is a lock that a keeper has.
type kept struct {
	Name  string
	Token holdfast.Token
}

// clients are the clients of a process.
type clients struct {
	settings
	all    []*holdfast.Client
	keeps  []*keeper
	served []atomic.Int64 // of each user: how often it has had its name
	stop   context.CancelFunc
	work   sync.WaitGroup

	watcher *watcher   // nil: there is none
	filing  sync.Mutex // while the writer does something
	epoch   int        // of the files that it writes

	mu    sync.Mutex
	wrong []string
	holds []faults.Hold
	files fileReport
}

// keeper is a lease that is watched until it is given back.
type keeper struct {
	*holdfast.Lease
	stop, done chan struct{}
	hold       faults.Hold // once done is closed
}

// obey runs a process of clients. It answers each command, a line, with a report.
func obey(text string) {
	ctx, stop := context.WithCancel(context.Background())
	c := &clients{stop: stop}
	if err := json.Unmarshal([]byte(text), &c.settings); err != nil {
		panic(err)
	}
	c.start(ctx)
	answer := func(r report) {
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			panic(err)
		}
	}
	answer(c.settled())
	commands := map[string]func() report{"served": c.allServed, "settle": c.settled, "end": c.end}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer(commands[lines.Text()]())
	}
}

// start opens the clients, and begins their work.
func (c *clients) start(ctx context.Context) {
	c.served, c.keeps = make([]atomic.Int64, c.Users), make([]*keeper, c.Keepers)
	for i := range c.Keepers {
		lock := c.open(ctx).Mutex(fmt.Sprint(c.Group, "/", i), &holdfast.Options{TTL: c.KeptTTL, LockDelay: c.LockDelay, RenewEvery: c.KeptTTL / 8})
		lease, err := lock.Acquire(ctx)
		if err != nil {
			panic(err)
		}
		k := &keeper{Lease: lease, stop: make(chan struct{}), done: make(chan struct{})}
		c.keeps[i] = k
		go func() {
			defer close(k.done)
			k.hold = faults.WatchEvery(lease, 20*time.Millisecond, k.stop, nil)
		}()
	}
	for i := range c.Users {
		client := c.open(ctx)
		c.work.Go(func() { c.use(ctx, i, client) })
	}
	c.startFiles(ctx)
}

func (c *clients) open(ctx context.Context) *holdfast.Client {
	client, err := holdfast.Open(ctx, c.URL)
	if err != nil {
		panic(err)
	}
	c.all = append(c.all, client)
	return client
}

// use takes a name again and again, until ctx ends. During a fault there must be errors.
func (c *clients) use(ctx context.Context, i int, client *holdfast.Client) {
	lock := client.Mutex(fmt.Sprint("used/", (c.First+i)%c.Names), &holdfast.Options{TTL: c.UsedTTL})
	var files *cell.Client                     // with which it writes under the lock
	if c.Fenced && i == 0 && c.Process%5 < 2 { // two at a time have the same name
		var err error
		if files, err = openCell(strings.TrimPrefix(c.URL, "cell://")); err != nil {
			panic(err)
		}
		defer files.Close()
	}
	for ctx.Err() == nil {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		c.served[i].Add(1)
		stop := make(chan struct{})
		if files == nil {
			time.AfterFunc(20*time.Millisecond, func() { close(stop) })
		} else {
			go func() {
				defer close(stop)
				c.underLock(ctx, files, lease)
			}()
		}
		c.note(faults.WatchEvery(lease, 5*time.Millisecond, stop, nil))
		err = lease.Release()
		if err != nil && !errors.Is(err, holdfast.ErrLost) && !errors.Is(err, holdfast.ErrUncertain) {
			c.blame("P4: a release of %s: %v", lock.Name(), err)
		}
		if err == nil && files != nil {
			c.afterLock(ctx, files, lease)
		}
	}
}

func (c *clients) note(h faults.Hold) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.Who = fmt.Sprintf("process %d", os.Getpid())
	c.holds = append(c.holds, h)
}

func (c *clients) blame(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// report returns what there is to say since the last report.
func (c *clients) report() (r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Wrong, r.Holds, r.Files = c.wrong, c.holds, c.files
	c.wrong, c.holds, c.files = nil, nil, fileReport{}
	return r
}

// recoverWithin is how long after a fault everybody must be served. Who is not is stuck.
const recoverWithin = time.Minute

// allServed waits until each user has got its name after this call (P7). The writer goes on with other files.
func (c *clients) allServed() report {
	c.nextFiles()
	before := make([]int64, len(c.served))
	for i := range before {
		before[i] = c.served[i].Load()
	}
	end := time.Now().Add(recoverWithin)
	for i := range before {
		for c.served[i].Load() == before[i] && time.Now().Before(end) {
			time.Sleep(5 * time.Millisecond)
		}
		if c.served[i].Load() == before[i] {
			c.blame("P7: user %d of %s was not served within %v", i, c.Group, recoverWithin)
		}
	}
	return c.report()
}

// settled renews what keepers have. None of it may be lost: their sessions have kept their calls. Watchers have been
// told of all that has happened before.
func (c *clients) settled() report {
	c.caughtUp()
	all := make([]kept, len(c.keeps))
	var each sync.WaitGroup
	for i, k := range c.keeps {
		each.Go(func() {
			for end := time.Now().Add(recoverWithin); ; time.Sleep(20 * time.Millisecond) {
				err := k.Renew(context.Background())
				switch lost := k.Err(); {
				case lost != nil:
					c.blame("P2: the session of %s has kept its calls, and the lease is lost: %v", k.Name(), lost)
				case err == nil:
					all[i] = kept{k.Name(), k.Token()}
				case time.Now().After(end):
					c.blame("P2: %s is neither renewed nor lost: %v", k.Name(), err)
				default:
					continue
				}
				return
			}
		})
	}
	each.Wait()
	r := c.report()
	r.Kept = slices.DeleteFunc(all, func(k kept) bool { return k.Name == "" })
	return r
}

// end ends the work and gives everything back.
func (c *clients) end() report {
	c.stop()
	c.work.Wait()
	c.endWatcher()
	for _, k := range c.keeps {
		close(k.stop)
		<-k.done
		c.note(k.hold)
		if err := k.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) {
			c.blame("P4: releasing %s: %v", k.Name(), err)
		}
	}
	for _, client := range c.all {
		if err := client.Close(); err != nil {
			c.blame("P9: closing a client of %s: %v", c.Group, err)
		}
	}
	return c.report()
}
