package celllock

import (
	"context"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
)

// Release implements driver.Driver. What may arrive later finds that the request is over (P6).
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	if err := c.alive(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	batches := map[*session][]int{}
	for i := range grants {
		s, err := c.sessionOf(ctx, &grants[i])
		if err != nil {
			errs[i] = c.translate(grants[i].Name, err)
			continue
		}
		batches[s] = append(batches[s], i)
	}
	for s, batch := range batches {
		for len(batch) > 0 {
			some := batch[:min(len(batch), batchSize)]
			batch = batch[len(some):]
			c.releaseSome(ctx, s, grants, some, errs)
		}
	}
	return errs
}

// batchSize is how many locks one call gives back.
const batchSize = 1000

func (c *client) releaseSome(ctx context.Context, s *session, grants []driver.Grant, some []int, errs []error) {
	msg := &cellv1.ReleaseRequest{Session: s.of.Credential()}
	for _, i := range some {
		g := &grants[i]
		k := c.keyOf(g.Name, g.Owner)
		msg.Locks = append(msg.Locks, &cellv1.Release{
			Name: k.name, Request: k.request, Token: int64(g.Token), Retried: g.Stray, Unused: g.Token == 0 || g.MinHold == 0,
		})
	}
	var outcomes []cellv1.Reason
	repeated := false // the answer to a call that may have released them was lost
	err := c.cell.Do(ctx, true, func(ctx context.Context, m *cell.Member) error {
		r, err := m.Locks.Release(ctx, msg)
		if err == nil {
			outcomes = r.Outcomes
		}
		repeated = repeated || err != nil && !cell.Certain(err)
		return err
	})
	if cell.ReasonOf(err) == cellv1.Reason_REASON_SESSION_OVER {
		s.end(err)
		outcomes, err = make([]cellv1.Reason, len(some)), nil
		for n := range outcomes {
			outcomes[n] = cellv1.Reason_REASON_NOT_HELD
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, i := range some {
		switch {
		case err != nil:
			errs[i] = c.translate(grants[i].Name, err)
			continue
		case n >= len(outcomes) || grants[i].Token == 0 && outcomes[n] == cellv1.Reason_REASON_NOT_HELD:
		case outcomes[n] == cellv1.Reason_REASON_NOT_HELD && repeated: // by that call, or lost before
		case outcomes[n] == cellv1.Reason_REASON_NOT_HELD:
			errs[i] = driver.ErrNotHeld
		case outcomes[n] == cellv1.Reason_REASON_BROKEN:
			errs[i] = driver.ErrBroken
		}
		if r := c.recordLocked(grants[i].Name, grants[i].Owner); r != nil && r.session == s {
			c.forgetLocked(r)
		}
	}
}
