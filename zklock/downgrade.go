package zklock

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// Downgrade implements driver.Downgrader. As Curator 5.5 and newer, it makes a reader's node with the
// writer's number, so that nobody comes in between; here in the transaction that deletes the writer's.
// The token stays the writer's: the new node's data says it.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if g.Mode == driver.Slot {
		return driver.Grant{}, driver.ErrUnsupported
	}
	renewal := c.Renew(ctx, []driver.Grant{g})[0]
	if renewal.Err != nil {
		return driver.Grant{}, renewal.Err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r := c.known(g.Name, g.Owner)
	if r == nil {
		return driver.Grant{}, driver.ErrNotHeld
	}
	if err := r.lock(ctx); err != nil {
		return driver.Grant{}, err
	}
	defer func() { <-r.busy }()
	if err := c.downgrade(ctx, r, g.Note); err != nil {
		return driver.Grant{}, err
	}
	g.Mode, g.Since, g.Valid, g.Token = driver.Shared, renewal.Since, renewal.Valid, r.token
	return g, nil
}

// downgrade makes the hold of a record, which the caller has reserved, a shared one.
func (c *client) downgrade(ctx context.Context, r *record, note string) error {
	c.mu.Lock()
	if r.state != held || r.session.trust.Over {
		c.mu.Unlock()
		return driver.ErrNotHeld
	}
	s, writer := r.session, r.nodes[0]
	e, ok := parseEntry(lastElement(writer))
	if ok && e.stem == stemRead {
		r.mode = driver.Shared
		c.mu.Unlock()
		return nil
	}
	reader := parent(writer) + "/" + r.guid.protected() + stemRead + e.digits()
	r.spare, r.watched = []string{reader}, false
	c.mu.Unlock()
	replies, err := s.do(ctx, zk.Multi(
		zk.Create(reader, downgradedData(note, r.token), c.acl, zk.Ephemeral),
		zk.Delete(writer, zk.AnyVersion),
	))
	if err != nil {
		return err // asked again, or found out by the next renewal
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch err := replies[0].Err; {
	case err == nil, errors.Is(err, zk.NodeExists):
		r.nodes, r.spare, r.mode, r.watched = []string{reader}, nil, driver.Shared, false
		r.downgraded = true
		return nil
	case errors.Is(err, zk.NoNode):
		c.brokenLocked(r)
		return driver.ErrBroken
	default:
		r.spare = nil
		return fmt.Errorf("downgrading: %w", err)
	}
}
