//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// Try implements driver.Driver.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, req, false)
}

// ask takes the hold or, with queue, a place in the queue.
func (c *client) ask(ctx context.Context, req driver.Request, queue bool) (driver.Grant, error) {
	var g driver.Grant
	if err := checkRequest(&req); err != nil {
		return g, err
	}
	err := c.do(ctx, req.Name, func(t *operation) error {
		if t.wasBroken(req.Owner) {
			return driver.ErrBroken
		}
		if err := t.stripe.withdrawn.Get(req.Owner, t.now); err != nil {
			return err // this is a withdrawn request that arrives late: it must not take effect (P6)
		}
		h, err := t.Ask(req, c.id, queue, t.sent, t.now, &t.rules)
		if err == nil {
			g = t.Grant(h)
			g.Request = req // the record's would keep all of its text in memory
		} else if held, ok := err.(*driver.HeldError); queue && ok {
			c.watchAhead(t, req.Owner, held.Ahead)
		}
		return err
	})
	switch {
	case err == nil:
		c.taken.Add(1)
		return g, nil
	case errors.Is(err, driver.ErrUncertain):
		c.taken.Add(1)
		return driver.Grant{Request: req}, err // to withdraw
	}
	return driver.Grant{}, err
}

// enter begins the use of a client that is open; the function that it returns ends it.
func (c *client) enter(ctx context.Context) (leave func(), err error) {
	c.busy.RLock()
	err = ctx.Err()
	select {
	case <-c.closed:
		err = driver.ErrClosed
	default:
	}
	if err != nil {
		c.busy.RUnlock()
	}
	return c.busy.RUnlock, err
}

// do runs an operation on a name, as change does, for a client that is open. It attaches the client
// first.
func (c *client) do(ctx context.Context, name string, op func(*operation) error) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.attach(ctx); err != nil {
		return err
	}
	return c.change(ctx, name, op)
}

// operation is one operation on one name, while its record is locked.
type operation struct {
	*state
	stripe *stripe        // of the name
	sent   driver.Instant // now, by the client's clock
	now    driver.Instant // the store's time
	rules  record.Rules
	wake   []waiter // to be told of their grants
	clean  bool     // delete the record if it is idle
}

// waiter is one that has a place in the queue.
type waiter struct{ client, owner string }

// stripe serialises the operations of this process on the names that fall to it, so that its goroutines
// do not contend for the same flock, and keeps the file of the last of them open.
type stripe struct {
	sync.Mutex
	open *file  // or nil; not locked between operations
	name string // whose record it is

	known *state // what the last operation left; nil: it is not known
	text  []byte // the same as bytes

	withdrawn record.Tombstones // requests: they can only come from this process
}

var stripeSeed = maphash.MakeSeed()

// drop closes the file that the stripe keeps open.
func (p *stripe) drop() {
	if p.open != nil {
		p.open.close()
		p.open, p.known = nil, nil
	}
}

// The reasons for which an operation starts over.
var (
	errCreated = errors.New("the name has a record now")
	errMoved   = errors.New("the record moved meanwhile, with or without what was done")
)

// change lets op change the record of a name, alone. Op may run more than once, each time on the record
// as it then is, and only the last time counts. Its error is returned, but does not undo what it did.
func (c *client) change(ctx context.Context, name string, op func(*operation) error) error {
	s := c.store
	p := &s.stripes[maphash.String(stripeSeed, name)%uint64(len(s.stripes))]
	p.Lock()
	defer p.Unlock()
	m := s.memory.Get().(*memory)
	defer s.memory.Put(m)
	for doubt := false; ; {
		err := ctx.Err()
		var result error
		if err == nil {
			result, err = c.attempt(ctx, p, name, m, op)
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

// attempt is one try of an operation. It returns the result of op, or an error if the operation is not
// done.
func (c *client) attempt(ctx context.Context, p *stripe, name string, m *memory, op func(*operation) error) (result, err error) {
	s, t := c.store, &m.op
	f, err := s.lock(ctx, p, name, m)
	if err != nil {
		return nil, err
	}
	t.wake = t.wake[:0]
	removed := false
	defer func() {
		// Only what is known to be the record is worth keeping open.
		if f == nil || err != nil || removed {
			p.drop()
		} else {
			f.unlock()
		}
		if err == nil {
			for _, w := range t.wake {
				s.wake(w)
			}
		}
	}()
	// The store is this host, so the request is sent and takes effect at the same instant: now, with
	// the record locked.
	t.sent = c.clock.Now()
	t.now = storeTime(t.sent)
	t.stripe, t.clean = p, false
	if f == nil {
		t.state = &state{name: name, boot: s.boot}
	} else if t.state, err = s.read(p, f, m, t.now); err != nil {
		return nil, explain(err, name, f.path)
	}
	t.rules.Last, t.rules.Least = &t.last, s.token(t.now)
	t.settle()
	result = op(t)
	switch {
	case f != nil:
		if removed, err = c.commit(t, f, m); err == nil {
			p.known, p.text, m.out = t.state, m.out, p.text
		}
	case !t.idle():
		// Only now a file is needed. It begins idle, and the operation is done again under its lock:
		// with no lock, this one may have stood still while others came and went, and its token be
		// lower than theirs (P3).
		c.idle.add(name, t.now)
		if err = create(s.place.Load().names, &state{name: name, boot: s.boot}); err == nil {
			err = errCreated
		}
	}
	return result, err
}

// read returns the state in a file that is locked.
func (s *store) read(p *stripe, f *file, m *memory, now driver.Instant) (st *state, err error) {
	known := p.known
	p.known = nil // until the operation is done
	if known != nil && string(f.text) == string(p.text[textStart:]) {
		return known, nil
	}
	if f.head.state == moving { // commit writes it into this file
		f.text = nil
		st, err = f.in.readRecord(context.Background(), f.name+oldSuffix, m)
	} else {
		st, err = f.parse(m)
	}
	if m.read = known; known == nil { // so that the next one does not change what is read now
		m.read = &state{}
	}
	if err == nil {
		err = s.place.Load().adopt(st, s.boot, now)
	}
	return st, err
}

// commit makes the operation's state the record, and deletes it if that is wanted.
func (c *client) commit(t *operation, f *file, m *memory) (removed bool, err error) {
	if err := f.store(t.state, m); errors.Is(err, errTorn) {
		return false, driver.Uncertain(explain(err, t.name, f.path))
	} else if err != nil {
		return false, explain(err, t.name, f.path)
	}
	if ok, err := f.current(); err != nil {
		return false, driver.Uncertain(explain(err, t.name, f.path))
	} else if !ok {
		return false, errMoved
	}
	if t.quiet() {
		// After the break of a hold with a block of tokens they are ahead of the time, and the record
		// stays until the time has caught up (P3).
		removed = t.clean && t.idle() && t.last < c.store.token(t.now) && c.store.place.Load().remove(f)
		if !removed {
			c.idle.add(t.name, t.now)
		}
	}
	return removed, nil
}

// settle brings the record up to now.
func (t *operation) settle() {
	t.Settle(t.now, &t.rules)
	t.broken = slices.DeleteFunc(t.broken, func(b broken) bool { return t.now >= b.until })
}

// granted has a waiter woken, which then looks for its grant, and if there is none confirms its place.
func (t *operation) granted(p *record.Place) { t.wake = append(t.wake, waiter{p.Client, p.Owner}) }

// tokenBlock is driver.Caps.TokenBlock. What a hold has reserved and not used is given back when it is
// released; so tokens get ahead of the time only by the blocks of holds that end in another way, by 4
// ms each.
const tokenBlock = 4096

// token is the least token that may be given out now: the microseconds of the store's time since an
// epoch that is fixed at the first use after a boot (P3). The store's time cannot be set, so the record
// of an idle name can be deleted and forgets nothing.
func (s *store) token(now driver.Instant) driver.Token {
	return driver.Token((s.epoch + int64(now)) / int64(time.Microsecond))
}
