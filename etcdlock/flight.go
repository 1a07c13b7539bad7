package etcdlock

import (
	"context"

	"github.com/holdfastlock/holdfast/driver"
)

// flight is one Enqueue on its way to the store. It does not end with its caller's context.
// Suppose that callers give up after milliseconds, and that each inherits the place of the
// one before (P8). If a request ended with its caller, nobody would know whether it has put
// its key, and the next one would have to ask anew. So the next one joins it instead, or
// takes the grant that it has brought. Each request is bounded by a time of its own.
type flight struct {
	done  chan struct{} // closed when grant and err are there
	grant driver.Grant
	err   error
}

// flightKey is whose flight it is.
type flightKey struct{ name, owner string }

// join returns the owner's flight, which is begun if there is none to wait for.
func (c *client) join(req *driver.Request) (*flight, error) {
	key := flightKey{req.Name, req.Owner}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, driver.ErrClosed
	}
	if f := c.flights[key]; f != nil && !f.isOverLocked(c, req) {
		return f, nil
	}
	f := &flight{done: make(chan struct{})}
	c.flights[key] = f
	own := *req
	c.background.Go(func() {
		f.grant, f.err = c.enqueue(c.life, own)
		close(f.done)
	})
	return f, nil
}

// isOverLocked reports whether a flight has ended and brought no grant that is still good.
func (f *flight) isOverLocked(c *client, req *driver.Request) bool {
	select {
	case <-f.done:
	default:
		return false
	}
	r := c.record(req.Name, req.Owner)
	return f.err != nil || r == nil || !c.isHoldLocked(r, &f.grant) || c.clock.Now() >= f.grant.Since.Add(f.grant.Valid/2)
}

// leaveFlightLocked forgets the owner's flight: its answer has been taken, or nobody wants it any more.
func (c *client) leaveFlightLocked(name, owner string) { delete(c.flights, flightKey{name, owner}) }

// Enqueue implements driver.Queuer. A place is a key on the lease of places,
// which is short, so that a client that has died delays nobody for long (P7); a
// hold that comes out of it is a claim until it is renewed.
func (c *client) Enqueue(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	f, err := c.join(&req)
	if err != nil {
		return driver.Grant{}, err
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return driver.Grant{Request: req}, driver.Uncertain(ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[flightKey{req.Name, req.Owner}] == f {
		c.leaveFlightLocked(req.Name, req.Owner)
	}
	g := f.grant
	if f.err == nil { // it may have been asked for with fewer tokens, or with more
		g.Request, g.Block = req, min(max(req.Tokens, 1), c.layout.block())
	}
	return g, f.err
}
