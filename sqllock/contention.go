package sqllock

import (
	"context"
	"database/sql"
	"time"
)

// contention keeps the steps of one client at one name apart, and knows at which names other
// clients write too. Steps of this client go one after the other, so they never collide.
// Where a write has collided with another client's in the last second, a step locks the row
// before it reads: that takes two round trips and never fails for others. The client's mutex
// guards it.
type contention struct {
	steps    map[string]*steps
	collided map[string]time.Time
	crowds   map[string]time.Time // where others were seen to wait, or to have waited before
	seen     map[string]seen      // what was read when an owner was found to have a hold
}

// seen is what was read of a name, and when.
type seen struct {
	*snapshot
	at time.Time
}

// steps are those of this client at one name.
type steps struct {
	slot chan struct{} // holds a value while one is under way
	n    int           // how many there are
}

func newContention() contention {
	return contention{map[string]*steps{}, map[string]time.Time{}, map[string]time.Time{}, map[string]seen{}}
}

// contendedFor is how long a name counts as contended after a collision.
const contendedFor = time.Second

// maxContended bounds how many names are remembered.
const maxContended = 1000

// stepPatience is how long a release waits for the step before it at its name, which may
// itself be waiting for the pool.
const stepPatience = 100 * time.Millisecond

// requestStep is request for a step that writes at a name. It waits, without a connection,
// until no other step of this client is under way there. The order only spares collisions:
// a renewal does not wait for it, and a release only for a short time.
func (c *client) requestStep(ctx context.Context, urgency priority, name string, f onConn) (Failure, error) {
	if urgency == renewing || c.writers != nil { // in SQLite the writer lock orders all steps
		return c.request(ctx, urgency, f)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	leave, err := c.enterStep(ctx, urgency, name)
	if err != nil {
		return Refused, err
	}
	defer leave()
	return c.request(ctx, urgency, f)
}

// changeSurely is change for a step that is expected to write.
func (c *client) changeSurely(ctx context.Context, conn *sql.Conn, name string, first *snapshot, l look, step func(*attempt)) error {
	if first == nil && c.contended(name) {
		return c.changeInTransaction(ctx, conn, name, l, step)
	}
	return c.change(ctx, conn, name, first, l, step)
}

// enterStep waits until no other step of this client is under way at the name; a release
// gives up waiting after stepPatience and goes on. It returns a function that ends the step,
// or the context's error.
func (c *client) enterStep(ctx context.Context, urgency priority, name string) (leave func(), err error) {
	c.mu.Lock()
	s := c.contention.steps[name]
	if s == nil {
		s = &steps{slot: make(chan struct{}, 1)}
		c.contention.steps[name] = s
	}
	s.n++
	c.mu.Unlock()
	forget := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.n--; s.n == 0 {
			delete(c.contention.steps, name)
		}
	}
	leave = func() { <-s.slot; forget() }
	select {
	case s.slot <- struct{}{}:
		return leave, nil
	default:
	}
	var impatient <-chan time.Time
	if urgency == releasing {
		timer := time.NewTimer(stepPatience)
		defer timer.Stop()
		impatient = timer.C
	}
	select {
	case s.slot <- struct{}{}:
		return leave, nil
	case <-impatient:
		forget()
		return func() {}, nil
	case <-ctx.Done():
		forget()
		return nil, ctx.Err()
	}
}

// noteCollision notes that another client has written at the name between this one's read
// and its write.
func (c *client) noteCollision(name string) {
	if c.writers != nil {
		return // who has the writer lock need not lock the row
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	note(c.contention.collided, name)
}

// forgetCollision forgets a collision of clients that come at the same time: it tells nothing of
// their later writes.
func (c *client) forgetCollision(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.contention.collided, name)
}

// contended reports whether a write collided at the name not long ago.
func (c *client) contended(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return recent(c.contention.collided, name)
}

// noteCrowd notes whether the row of a name says that there is a crowd.
func (c *client) noteCrowd(name string, crowd bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if crowd {
		note(c.contention.crowds, name)
	} else {
		delete(c.contention.crowds, name)
	}
}

// crowded reports whether the row of a name said not long ago that there is a crowd.
func (c *client) crowded(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return recent(c.contention.crowds, name)
}

// seenFor is how long a snapshot may be used that was read for another step.
const seenFor = 20 * time.Millisecond

// noteSeen notes what was read when an owner was found to have a hold. A release soon after need not
// read the name again: its write fails if anybody has written the row since, or has given up a place.
func (c *contention) noteSeen(owner string, s *snapshot, at time.Time) {
	if len(c.seen) >= maxContended {
		clear(c.seen)
	}
	c.seen[owner] = seen{s, at}
}

// takeSeen returns what was noted of an owner, once, with the server's time as it is by now at
// least; nil: nothing.
func (c *client) takeSeen(owner string) *snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.contention.seen[owner]
	delete(c.contention.seen, owner)
	age := time.Since(s.at)
	if !ok || age > seenFor {
		return nil
	}
	s.now += age.Microseconds()
	return s.snapshot
}

func note(times map[string]time.Time, name string) {
	if len(times) >= maxContended {
		clear(times)
	}
	times[name] = time.Now()
}

// recent reports whether a name was noted within contendedFor, and forgets it if not.
func recent(times map[string]time.Time, name string) bool {
	at, ok := times[name]
	if ok && time.Since(at) > contendedFor {
		delete(times, name)
		return false
	}
	return ok
}

// Contended implements driver.ContentionHinter: others waited for the name when this client last read
// it. A try would only be refused, and taking the place, which follows, tells as much.
func (c *client) Contended(name string) bool { return c.crowded(name) }
