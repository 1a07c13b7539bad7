package sqllock

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// watch is one call of Watch. The client's mutex guards it.
type watch struct {
	pollState
	name    string
	hints   chan struct{}
	holders string // at the last poll; "": there was none
}

// Watch implements driver.Watcher. No database notifies a client of a row's changes, so the
// poller asks, in one statement for all names that are watched or waited for. Renewals and
// waiters are no changes.
func (c *client) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	w := &watch{name: name, hints: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.alive(ctx); err != nil {
		return nil, err
	}
	c.watches[w] = true
	c.startPollingLocked(&w.pollState)
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unwatch(w)
	})
	return w.hints, nil
}

// unwatch ends a watch. The client's mutex is held.
func (c *client) unwatch(w *watch) {
	if c.watches[w] {
		delete(c.watches, w)
		close(w.hints)
	}
}

// update gives a hint if the holders are others than at the last poll, or there were others in between, and
// reports whether it is so. A hold that came and went between two polls counts, by its token: an earlier hint
// may have made the watcher look at the name while it was held. The first poll gives a hint too: the holders may
// have changed since the watch began.
func (w *watch) update(st *state) bool {
	var b strings.Builder
	fmt.Fprintf(&b, "last %d", st.last)
	for i := range st.Holds {
		if h := &st.Holds[i]; h.Closed {
			b.WriteString(" closed")
		} else {
			fmt.Fprintf(&b, " %d %d %d %q", h.Token, h.Mode, h.Permits, h.Note)
		}
	}
	if b.String() == w.holders {
		return false
	}
	w.holders = b.String()
	select {
	case w.hints <- struct{}{}:
	default: // there is a hint already
	}
	return true
}

var _ driver.Watcher = (*client)(nil)
