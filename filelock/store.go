//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// poll is Caps.Poll. A waiter is told of its grant within microseconds, so the poll
// only bounds how long a stopped waiter delays others (P7), and is long
// beside the pauses of a loaded machine.
const poll = 500 * time.Millisecond

// store is one directory, shared by the clients of this process.
type store struct {
	dir  string // without symbolic links
	caps driver.Caps
	refs int // clients, under opened.Mutex

	opening   sync.Mutex // held while directories are opened
	place     atomic.Pointer[place]
	stale     []*place      // under opening: of directories that others have replaced
	attaching chan struct{} // full while attach is under way
	attached  atomic.Bool   // true: place, paths and epoch are set for good
	epoch     int64         // see token

	stripes  [64]stripe
	paths    fileLock
	liveness liveness

	mu         sync.Mutex
	tombstones record.Tombstones // withdrawn requests: they can only come from this process
	buffers    sync.Pool         // *buffers
}

// stripe serialises the operations of this process on the names that fall to it, so
// that its goroutines do not contend for the same flock, and keeps the file of
// the last of them open.
type stripe struct {
	sync.Mutex
	open *file  // or nil; not locked between operations
	page []byte // memory for file.ours of the next one
}

// drop closes the file that the stripe keeps open.
func (p *stripe) drop() {
	if p.open != nil {
		p.page = p.open.ours[:0]
		p.open.close()
		p.open = nil
	}
}

// buffers is memory that operations use again.
type buffers struct {
	page []byte
	text []byte
	op   operation
}

// operation is one operation on one name, while its record is locked.
type operation struct {
	*state
	store *store
	sent  driver.Instant // now, by the client's clock
	now   driver.Instant // the store's time
	rules record.Rules
	wake  []waiter // to be told of their grants
	clean bool     // delete the record if it is idle
}

// waiter is one that has a place in the queue.
type waiter struct{ client, owner string }

// withdrawnFor is how long a withdrawn request is remembered: it can only be
// under way within this process, and for no longer.
const withdrawnFor = time.Minute

// change lets op change the record of a name, alone. Op may run more than once,
// each time on the record as it then is, and only the last time counts. Its
// error is returned, but does not undo what it did.
func (c *client) change(ctx context.Context, name string, op func(*operation) error) error {
	s := c.store
	p := &s.stripes[hash(name)%uint64(len(s.stripes))]
	p.Lock()
	defer p.Unlock()
	file := ""
	if f := p.open; f != nil && f.known != nil && f.known.name == name {
		file = f.name
	} else {
		file = fileName(name)
	}
	doubt := false
	for {
		err := ctx.Err()
		var result error
		if err == nil {
			result, err = c.attempt(ctx, p, name, file, op)
		}
		switch {
		case err == nil:
			return result
		case err == errMoved:
			doubt = true
		case err == errCreated:
		case doubt:
			return driver.Uncertain(err)
		default:
			return err
		}
	}
}

// The reasons for which an operation starts over.
var (
	errCreated = errors.New("the name has a record now")
	errMoved   = errors.New("the record moved meanwhile, with or without what was done")
)

// attempt is one try of an operation. It returns the result of op, or an error if the
// operation is not done.
func (c *client) attempt(ctx context.Context, p *stripe, name, file string, op func(*operation) error) (result, err error) {
	s := c.store
	buf := s.getBuffers()
	defer s.buffers.Put(buf)
	names := s.place.Load().names
	f, err := s.lock(ctx, p, names, file, buf)
	if err != nil {
		return nil, err
	}
	t := &buf.op
	removed := false
	defer func() {
		if f != nil {
			buf.page = f.page // it may have grown
		}
		// Only what is known to be the record is worth keeping open.
		if f == nil || err != nil || removed {
			p.drop()
		} else {
			f.unlock()
		}
		if err == nil {
			for _, r := range t.wake {
				s.wake(r)
			}
		}
	}()
	if f == nil {
		t.state = &state{name: name}
	} else if t.state, err = f.state(name); err != nil {
		return nil, err
	}
	// The store is this host, so the request is sent and takes effect at the
	// same instant: now, with the record locked.
	t.sent = c.clock.Now()
	t.now = storeTime(t.sent)
	t.rules.Last, t.rules.Least = &t.last, s.token(t.now)
	t.settle()
	result = op(t)
	t.tellHead()
	switch {
	case t.err != nil:
		return nil, explain(t.err, name, f.path)
	case f != nil:
		removed, err = c.commit(t, f, buf)
	case !t.idle():
		// Only now a file is needed. It begins idle, and the operation is done again
		// under its lock: with no lock, this one may have stood still while
		// others came and went, and its token be lower than theirs (P3).
		c.idle.add(name)
		if err = create(names, file, &state{name: name}); err == nil {
			err = errCreated
		}
	}
	return result, err
}

// commit makes the operation's state the record, and deletes it if that is wanted.
func (c *client) commit(t *operation, f *file, buf *buffers) (removed bool, err error) {
	buf.text = appendState(buf.text[:0], t.state)
	if !bytes.Equal(buf.text, f.text) {
		if err := f.store(buf.text); errors.Is(err, errTorn) {
			return false, driver.Uncertain(explain(err, t.name, f.path))
		} else if err != nil {
			return false, explain(err, t.name, f.path)
		}
		if f.known = t.state; t.Unloaded > 0 || len(t.rest) > 0 {
			f.known = nil // its lines are in memory that is used again
		}
	}
	if ok, err := f.current(); err != nil {
		return false, driver.Uncertain(explain(err, t.name, f.path))
	} else if !ok {
		return false, errMoved
	}
	if t.quiet() {
		// Suppose a hold with a block of tokens was broken at once: the tokens are ahead of
		// the time, and the record stays until the time has caught up (P3).
		removed = t.clean && t.idle() && t.last < c.store.token(t.now) && c.store.remove(f)
		if !removed {
			c.idle.add(t.name)
		}
	}
	return removed, nil
}

func (s *store) getBuffers() *buffers {
	b, ok := s.buffers.Get().(*buffers)
	if !ok {
		b = &buffers{page: make([]byte, 8*pageSize)}
		b.op.store = s
		b.op.rules = record.Rules{Poll: poll, Granted: b.op.granted, Alive: s.alive}
	}
	b.op.wake, b.op.clean = b.op.wake[:0], false
	return b
}

// settle brings the record up to now.
func (t *operation) settle() {
	t.Settle(t.now, &t.rules)
	for len(t.Queue) == 0 && t.Unloaded > 0 && t.err == nil {
		t.loadNext()
		t.Settle(t.now, &t.rules)
	}
	kept := t.broken[:0]
	for _, b := range t.broken {
		if t.now < b.until {
			kept = append(kept, b)
		}
	}
	t.broken = kept
}

func (t *operation) granted(p *record.Place) { t.tell(waiter{p.Client, p.Owner}) }

// tell has a waiter woken.
func (t *operation) tell(w waiter) {
	if !slices.Contains(t.wake, w) {
		t.wake = append(t.wake, w)
	}
}

// tellHead has the new head of the queue woken if others than the one that was ahead of it hold the
// name: from now on it has to watch them all.
func (t *operation) tellHead() {
	if len(t.wake) == 0 || len(t.Holds) < 2 {
		return
	}
	if len(t.Queue) > 0 {
		t.tell(waiter{t.Queue[0].Client, t.Queue[0].Owner})
	}
}

// tokenBlock is driver.Caps.TokenBlock. What a hold has reserved and not used is given back
// when it is released; so tokens get ahead of the time only by the blocks of holds that end
// in another way, by 4 ms each.
const tokenBlock = 4096

// token is the least token that may be given out now: the microseconds of the store's
// time since an epoch that is fixed at the first use after a boot (P3). The store's time
// cannot be set, so the record of an idle name can be deleted and forgets nothing.
func (s *store) token(now driver.Instant) driver.Token {
	return driver.Token((s.epoch + int64(now)) / int64(time.Microsecond))
}

// state reads the record of an open file.
func (f *file) state(name string) (*state, error) {
	if f.fresh {
		return f.known, nil
	}
	if f.head.state == moving {
		st, err := f.inherit()
		return st, explain(err, name, f.path)
	}
	st, err := f.parse(parseHead)
	return st, explain(err, name, f.path)
}

// parse returns the state in the text, which must be that of the file.
func (f *file) parse(parse parser) (*state, error) {
	st, err := parse(f.text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if fileName(st.name) != strings.TrimSuffix(f.name, oldSuffix) {
		return nil, fmt.Errorf("%w: it is the record of %q", errDamaged, st.name)
	}
	return st, nil
}

// create makes the file of a name, unless it has one meanwhile. It appears
// complete, so an empty or short one is always damage.
func create(names *folder, file string, st *state) error {
	text := appendState(nil, st)
	b := make([]byte, textStart, textStart+len(text))
	appendHeader(b[:0], textStart, settled, text)
	return explain(names.publish(file, append(b, text...), false), st.name, names.at(file))
}
