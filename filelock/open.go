//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// store is one directory, shared by the clients of this process.
type store struct {
	dir  string // without symbolic links
	caps driver.Caps
	boot uint64 // of the host: see boot.go
	refs int    // clients, under opened.Mutex

	attaching chan struct{}         // full while attach is under way
	place     atomic.Pointer[place] // nil until a client is attached; with it, epoch is set for good
	epoch     int64                 // see token
	stripes   [64]stripe
	memory    sync.Pool // *memory
}

// client is one client of a store.
type client struct {
	store *store
	clock driver.Clock
	id    string
	idle  idleNames
	taken atomic.Int64 // at least the holds that are not released

	contended [64]atomic.Uint64 // hashes of names that others waited for when they were released

	attached atomic.Bool // life is set
	life     *life
	cleaning sync.WaitGroup // cleanUp

	busy   sync.RWMutex // held for reading by operations, so that Close waits for them
	closed chan struct{}

	mu      sync.Mutex
	waiters map[uint64]*watcher // by hash of the owner
}

// opened are the stores of this process. Clients of one directory share one, under whatever path they
// opened it.
var opened = struct {
	sync.Mutex
	m map[string]*store
}{m: map[string]*store{}}

// open checks whether the directory can be used, and changes nothing: the first operation that changes
// something makes what is missing (attach). So inspecting and listing leave no trace.
func open(ctx context.Context, o Options) (driver.Driver, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dir, err := resolve(o.Dir)
	if err != nil {
		return nil, &driver.OpenError{Err: err, Lasting: true}
	}
	if fatal, _ := examine(dir); len(fatal) > 0 {
		return nil, &driver.OpenError{Err: fatal[0], Lasting: true}
	}
	opened.Lock()
	defer opened.Unlock()
	s := opened.m[dir]
	if s == nil {
		if s, err = newStore(dir); err != nil {
			return nil, &driver.OpenError{Err: err, Lasting: true}
		}
	}
	_, done, err := s.view(ctx)
	if err != nil {
		return nil, &driver.OpenError{Err: err, Lasting: true}
	}
	done()
	opened.m[dir] = s
	s.refs++
	return newClient(s, o.Clock), nil
}

func newStore(dir string) (*store, error) {
	boot, err := bootID()
	if err != nil {
		return nil, fmt.Errorf("filelock: which boot of the host this is cannot be told: %w", err)
	}
	s := &store{
		dir:       dir,
		boot:      hash(boot),
		attaching: make(chan struct{}, 1),
		caps: driver.Caps{
			Store:   "file://" + dir,
			Fencing: true, Shared: true, Slots: true, Fair: true,
			MinTTL: 10 * time.Millisecond, Poll: poll, Recalls: wakes, TokenBlock: tokenBlock,
			Guarantees: guarantees,
		},
	}
	s.memory.New = func() any { return newMemory(s) }
	return s, nil
}

func newClient(s *store, clock driver.Clock) *client {
	var id [idLength / 2]byte
	rand.Read(id[:])
	return &client{
		store: s, clock: clock, id: hex.EncodeToString(id[:]), closed: make(chan struct{}), waiters: map[uint64]*watcher{},
	}
}

// Caps implements driver.Driver.
func (c *client) Caps() driver.Caps { return c.store.caps }

// attach makes the directory fit for use, and the client one that others see, before it changes anything.
func (c *client) attach(ctx context.Context) error {
	if c.attached.Load() {
		return nil
	}
	s := c.store
	select {
	case s.attaching <- struct{}{}:
		defer func() { <-s.attaching }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.attached.Load() {
		return nil
	}
	if err := s.attach(ctx, storeTime(c.clock.Now())); err != nil {
		return err
	}
	var err error
	if c.life, err = newLife(s.place.Load().clients, c.id); err != nil {
		return err
	}
	c.idle.since, c.idle.timer = map[string]driver.Instant{}, time.AfterFunc(idleFor, c.cleanIdle)
	local.Store(c.id, c)
	c.attached.Store(true)
	c.cleaning.Go(c.cleanUp) // beside the caller, who has a deadline (P11)
	return nil
}

// attach makes what is missing of the directory.
func (s *store) attach(ctx context.Context, now driver.Instant) error {
	if s.place.Load() != nil {
		return nil
	}
	// A process that may not write a page would be killed in the middle of the first change of a record.
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit) == nil && uint64(limit.Cur) < pageSize {
		return fmt.Errorf("filelock: this process may write files of %d bytes only: raise the limit (ulimit -f)", limit.Cur)
	}
	p, err := openPlace(ctx, s.dir, true)
	if err != nil {
		return err
	}
	if err := s.begin(p, now); err != nil {
		p.close()
		return err
	}
	s.place.Store(p)
	return nil
}

// unref ends the use by one client.
func (s *store) unref() {
	opened.Lock()
	defer opened.Unlock()
	s.refs--
	if s.refs > 0 {
		return
	}
	if opened.m[s.dir] == s {
		delete(opened.m, s.dir)
	}
	for i := range s.stripes {
		s.stripes[i].drop()
	}
	if p := s.place.Load(); p != nil {
		p.close()
	}
}

// resolve returns a directory's path without symbolic links. It need not exist yet.
func resolve(dir string) (string, error) {
	dir = filepath.Clean(dir)
	there := nearest(dir)
	real, err := filepath.EvalSymlinks(there)
	return real + strings.TrimPrefix(dir, strings.TrimSuffix(there, "/")), explain(err, "", there)
}

// nearest returns the directory, or else the nearest one above that exists.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// examine returns what keeps locks from working in a directory, or in one that is made below it, and
// what makes them weak.
func examine(dir string) (fatal, weak []error) {
	dir = nearest(dir)
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return []error{explain(err, "", dir)}, nil
	}
	if problem := networkFS(dir); problem != "" {
		fatal = append(fatal, fmt.Errorf("%s %s: flock and the host's clock end at the host, so locks there exclude nobody elsewhere: use a local file system", dir, problem))
	}
	if err := checkClock(); err != nil {
		fatal = append(fatal, err)
	}
	// The system asks for the real user; where that is another one, opening tells.
	if err := syscall.Access(dir, 7); err != nil && os.Getuid() == os.Geteuid() {
		fatal = append(fatal, explain(err, "", dir))
	}
	if info.Mode().Perm()&0o002 != 0 {
		weak = append(weak, fmt.Errorf("%s can be written by everybody on this host: any user can hold, break or damage the locks", dir))
	}
	return fatal, weak
}

// CheckDir returns what is wrong with a directory as a directory of locks, each in a sentence; nothing, if
// it is fine. It is CheckPlace, and checks whether the directory is in use for something else. Open
// refuses what would break the locks; the rest is for people to judge.
func CheckDir(dir string) []string {
	found := CheckPlace(dir)
	if info, err := os.Stat(dir); !filepath.IsAbs(dir) || err != nil || !info.IsDir() || syscall.Access(dir, 7) != nil {
		return found // it is to be made, or it has been said why it is of no use
	}
	real, err := resolve(dir)
	if err == nil {
		p := &place{}
		err = p.open(real, false)
		p.close()
	}
	if err != nil {
		found = append(found, err.Error())
	}
	return found
}

// CheckPlace returns what is wrong with a directory as a place for files with locks in them, such as an
// SQLite database, each in a sentence. It changes nothing, and looks at the nearest directory above where
// dir does not exist. On NetBSD and OpenBSD it cannot tell the file system.
func CheckPlace(dir string) (found []string) {
	if !filepath.IsAbs(dir) {
		return []string{dir + " is relative: every process must mean the same directory"}
	}
	fatal, weak := examine(dir)
	for _, err := range append(fatal, weak...) {
		found = append(found, err.Error())
	}
	return found
}
