//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// poll is Caps.Poll. A bell tells a waiter of its grant within microseconds, so
// it only bounds how long a stopped waiter delays others (P7), and is long
// beside the pauses of a loaded machine.
const poll = 500 * time.Millisecond

// store is one directory, shared by the clients of this process.
type store struct {
	dir     string // without symbolic links
	names   string // the record files
	clients string // a file per client, see life
	perm    fs.FileMode
	epoch   int64 // see token
	caps    driver.Caps
	refs    int // clients, under opened.Mutex

	// stripes keep the goroutines of this process from contending for the same
	// flock: one thread at most blocks for each.
	stripes [256]sync.Mutex
	paths   pathsLock
	temp    atomic.Int64 // numbers temporary files
	pulse   pulse

	mu    sync.Mutex
	gone  record.Farewells // withdrawn requests: they can only come from this process
	rooms sync.Pool        // *room
}

// room is memory that turns use again.
type room struct {
	page [4096]byte
	text []byte
}

// turn is one operation on one name, while its record is locked.
type turn struct {
	*state
	store *store
	sent  driver.Instant // now, by the client's clock
	now   driver.Instant // the store's time
	rules record.Rules
	ring  []ring
	clean bool // delete the record if it is idle
}

// ring is a waiter to be told of its grant.
type ring struct{ client, owner string }

// withdrawnFor is how long a withdrawn request is remembered, if that is more
// than its TTL.
const withdrawnFor = time.Minute

// turn lets op change the record of a name, alone. Op may run more than once,
// each time on the record as it then is, and only the last time counts. Its
// error is returned, but does not undo what it did.
func (c *client) turn(ctx context.Context, name string, op func(*turn) error) error {
	s := c.store
	path := filepath.Join(s.names, fileName(name))
	mu := &s.stripes[hash(name)%uint64(len(s.stripes))]
	mu.Lock()
	defer mu.Unlock()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		done, err := c.attempt(ctx, name, path, op)
		if done || err != nil {
			return err
		}
	}
}

// attempt is one try of a turn. It reports false when the record moved to
// another file meanwhile, so that what was done may not count.
func (c *client) attempt(ctx context.Context, name, path string, op func(*turn) error) (done bool, err error) {
	s := c.store
	room := s.room()
	defer s.rooms.Put(room)
	f, err := s.lock(ctx, path, room)
	if err != nil {
		return false, err
	}
	st := &state{name: name}
	if f != nil {
		defer f.close()
		if st, err = f.state(name); err != nil {
			return false, err
		}
	}
	// The store is this host, so the request is sent and takes effect at the
	// same instant: now, with the record locked.
	t := &turn{state: st, store: s, sent: c.clock.Now()}
	t.now = storeTime(t.sent)
	t.rules = record.Rules{Poll: poll, Token: t.token, Granted: t.granted, Alive: s.alive}
	t.settle()
	result := op(t)

	room.text = appendState(room.text[:0], st)
	switch {
	case f == nil && st.idle():
		return true, result
	case f == nil:
		if made, err := s.create(path, room.text); !made {
			return false, err
		}
	default:
		if !bytes.Equal(room.text, f.text) {
			if err := f.store(room.text); errors.Is(err, errTorn) {
				return false, driver.Uncertain(explain(err, name, path))
			} else if err != nil {
				return false, explain(err, name, path)
			}
		}
		if ok, err := f.current(); !ok || err != nil {
			return false, err
		}
		if st.idle() {
			if !t.clean || st.last > s.token(t.now) {
				c.idle.add(name)
			} else if gone, err := s.remove(f); !gone || err != nil {
				c.idle.add(name)
			}
		}
	}
	for _, r := range t.ring {
		s.wake(r)
	}
	return true, result
}

func (s *store) room() *room {
	if r, ok := s.rooms.Get().(*room); ok {
		return r
	}
	return &room{}
}

// settle brings the record up to now.
func (t *turn) settle() {
	t.Settle(t.now, &t.rules)
	kept := t.broken[:0]
	for _, b := range t.broken {
		if t.now < b.until {
			kept = append(kept, b)
		}
	}
	t.broken = kept
}

func (t *turn) granted(p *record.Place) {
	t.ring = append(t.ring, ring{p.Client, p.Owner})
}

// token returns the next token: the microseconds of the store's time since an
// epoch that is fixed at the first use after a boot, or one more than the last
// (P3). The store's time cannot be set, so the record of an idle name can be
// deleted and forgets nothing.
func (t *turn) token() driver.Token {
	t.last = max(t.last+1, t.store.token(t.now))
	return t.last
}

func (s *store) token(now driver.Instant) driver.Token {
	return driver.Token((s.epoch + int64(now)) / int64(time.Microsecond))
}

// state reads the record of an open file.
func (f *file) state(name string) (*state, error) {
	if f.head.state == moving {
		// Its thief died before the text was here.
		if err := f.inherit(); err != nil {
			return nil, explain(err, name, f.path)
		}
	}
	st, err := parseState(string(f.text))
	if err != nil {
		return nil, explain(fmt.Errorf("%w: %w", errDamaged, err), name, f.path)
	}
	if name == "" {
		name = st.name
	}
	if st.name != name || fileName(name) != filepath.Base(f.path) {
		return nil, explain(fmt.Errorf("%w: it is the record of %q", errDamaged, st.name), name, f.path)
	}
	return st, nil
}

// create makes the file of a name that has none. It appears complete, under a
// link, so that an empty or short file is always damage. It reports false when
// there is one already.
func (s *store) create(path string, text []byte) (bool, error) {
	temp, fd, err := s.temporary()
	if err != nil {
		return false, explain(err, "", temp)
	}
	defer os.Remove(temp)
	defer closeFD(fd)
	b := make([]byte, textStart, textStart+len(text))
	appendHeader(b[:0], textStart, settled, text)
	if err := pwrite(fd, append(b, text...), 0); err != nil {
		return false, explain(err, "", path)
	}
	if err := os.Link(temp, path); errors.Is(err, fs.ErrExist) {
		return false, nil
	} else if err != nil {
		return false, explain(err, "", path)
	}
	return true, nil
}

// temporary makes a new file beside the records.
func (s *store) temporary() (path string, fd int, err error) {
	path = filepath.Join(s.names, fmt.Sprintf("%d-%d-%d.tmp", os.Getpid(), s.temp.Add(1), time.Now().UnixNano()))
	fd, err = openFD(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, s.perm)
	return path, fd, err
}
