package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Release implements driver.Driver. A hold is released when a majority of the nodes is free of it. The
// others are told in the background.
func (q *quorum) Release(ctx context.Context, grants []driver.Grant) []error {
	if err := q.enter(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	defer q.calls.Done()
	errs := make([]error, len(grants))
	holds, ttl := make([]*hold, len(grants)), time.Duration(0)
	for i, g := range grants {
		h := q.holdOf(g)
		h.mu.Lock()
		h.withdraw(g)
		h.mu.Unlock()
		holds[i], ttl = h, max(ttl, g.TTL)
	}
	late, cancel := context.WithTimeout(ctx, q.patience(ttl))
	defer cancel()
	for i, h := range holds {
		select {
		case <-h.freed.Done():
		case <-late.Done():
		case <-q.life.Done():
		}
		errs[i] = h.released()
	}
	return errs
}

// released returns what became of a release. Package holdfast repeats one that has failed. If the hold was valid, nobody
// else can have had the name, whatever votes the nodes have forgotten.
func (h *hold) released() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	free, gone, broken := 0, 0, false // nodes that are free of the hold; of these, those that had not had it
	for i := range h.ballots {
		switch b := &h.ballots[i]; {
		case !b.Free():
			errs = append(errs, b.said)
		case b.said != nil:
			free, gone, broken = free+1, gone+1, broken || errors.Is(b.said, driver.ErrBroken)
		default:
			free++
		}
	}
	needed := h.q.rules.Majority()
	switch {
	case free < needed:
		return fmt.Errorf("released at %d of %d nodes: %w", free, len(h.ballots), errors.Join(errs...))
	case gone < needed || h.foreign || h.until == 0: // one that was not granted may have been withdrawn before
	case broken:
		return driver.ErrBroken
	case !h.valid:
		return driver.ErrNotHeld
	}
	return nil
}
