package sqllock

import (
	"context"
	"database/sql"
	"time"
)

// crowds knows of names which steps of this client are under way, and which are
// crowded: others were quicker to write there not long ago. Steps of one client at
// one name go one after the other, so that they do not get in each other's way, and a
// step that writes at a crowded name locks the row at once: then it takes two round
// trips, and waits its turn. The client's mutex guards it.
type crowds struct {
	steps   map[string]*steps
	crowded map[string]time.Time
}

// steps are those of this client at one name.
type steps struct {
	turn chan struct{} // holds a value while one is under way
	n    int           // how many there are
}

func newCrowds() crowds { return crowds{map[string]*steps{}, map[string]time.Time{}} }

// crowdedFor is how long a name is taken to be crowded after a collision.
const crowdedFor = time.Second

// mostCrowded bounds what is remembered.
const mostCrowded = 1000

// turnPatience is for how long a release waits until the step before it at its name
// is over. That may be one that waits for the pool.
const turnPatience = 100 * time.Millisecond

// requestStep is request for a step that writes at a name, when no other such step of
// this client is under way there. It waits for its turn without a connection. The
// turns only spare collisions, so a renewal takes none, and a release waits for its
// turn a short time only.
func (c *client) requestStep(ctx context.Context, urgency priority, name string, f func(context.Context, *sql.Conn) error) (Failure, error) {
	if urgency == renewing || c.statements.dialect == SQLite { // which has a turn for the whole store
		return c.request(ctx, urgency, f)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	end, err := c.begin(ctx, urgency, name)
	if err != nil {
		return Refused, err
	}
	defer end()
	return c.request(ctx, urgency, f)
}

// changeSurely is change for a step that is expected to write.
func (c *client) changeSurely(ctx context.Context, conn *sql.Conn, name string, first *snapshot, step func(*turn)) error {
	if first == nil && c.crowded(name) {
		return c.changeAlone(ctx, conn, name, step)
	}
	return c.change(ctx, conn, name, first, step)
}

// begin waits until no other step of this client is under way at the name, or has been
// for too long for this one. It returns how to end it, or the context's error.
func (c *client) begin(ctx context.Context, urgency priority, name string) (end func(), err error) {
	c.mu.Lock()
	s := c.crowds.steps[name]
	if s == nil {
		s = &steps{turn: make(chan struct{}, 1)}
		c.crowds.steps[name] = s
	}
	s.n++
	c.mu.Unlock()
	leave := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.n--; s.n == 0 {
			delete(c.crowds.steps, name)
		}
	}
	end = func() { <-s.turn; leave() }
	select {
	case s.turn <- struct{}{}:
		return end, nil
	default:
	}
	var impatient <-chan time.Time
	if urgency == releasing {
		timer := time.NewTimer(turnPatience)
		defer timer.Stop()
		impatient = timer.C
	}
	select {
	case s.turn <- struct{}{}:
		return end, nil
	case <-impatient:
		leave()
		return func() {}, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// crowd says that another was quicker to write.
func (c *client) crowd(name string) {
	if c.turns != nil {
		return // a turn's holder need not lock the row
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.crowds.crowded) >= mostCrowded {
		clear(c.crowds.crowded)
	}
	c.crowds.crowded[name] = time.Now()
}

// crowded reports whether others write there too, as far as is known.
func (c *client) crowded(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.crowds.crowded[name]
	if ok && time.Since(at) > crowdedFor {
		delete(c.crowds.crowded, name)
		return false
	}
	return ok
}
