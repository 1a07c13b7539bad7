package redisson

import (
	"context"
	"strconv"

	rules "github.com/holdfastlock/holdfast/redislock/internal/redisson"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Latch is closed until a number of events were counted: Redisson's RCountDownLatch. It is a string at its
// name, which is there as long as the latch is closed. Safe for concurrent use.
type Latch struct {
	c             *Client
	name, channel string
}

// Latch returns the latch of a name, and asks no server. Names are those of locks, without a prefix. In a
// cluster it refuses names that Redisson handles wrongly there: those with braces.
func (c *Client) Latch(name string) (*Latch, error) {
	l := &Latch{c, name, rules.LatchChannel(name)}
	if err := c.check(name, l.channel); err != nil {
		return nil, failed("latch", name, err)
	}
	return l, nil
}

// Create closes the latch until so many events were counted, 1 to MaxCount, and reports whether it has: it
// has not if the latch is closed already. It is Redisson's trySetCount.
func (l *Latch) Create(ctx context.Context, events int) (bool, error) {
	if err := checkCount(events); err != nil {
		return false, failed("create", l.name, err)
	}
	n, err := l.run(ctx, "create", latchCreateScript, strconv.Itoa(events), l.c.publish)
	return n == 1, err
}

// CountDown counts one event, and returns how many are left. After the last one the latch is open, and all
// who wait go on. Of an open latch it does nothing. It is sent even if ctx has ended.
func (l *Latch) CountDown(ctx context.Context) (left int, err error) {
	return l.run(ctx, "count down", latchDownScript, l.c.publish)
}

// Count returns how many events are still to be counted: 0 if the latch is open.
func (l *Latch) Count(ctx context.Context) (int, error) {
	n, err := l.c.get(ctx, l.name)
	return max(n, 0), failed("count", l.name, err)
}

// Await waits until the latch is open. It returns at once if it is, or if nobody has closed it.
func (l *Latch) Await(ctx context.Context) error {
	open := func() (bool, error) {
		n, err := l.c.get(ctx, l.name)
		return n <= 0, err
	}
	if ok, err := open(); ok || err != nil {
		return failed("await", l.name, err)
	}
	return failed("await", l.name, l.c.await(ctx, l.channel, 0, open))
}

// Delete opens the latch, whatever its count, and reports whether it was closed. All who wait go on, those of
// Redisson too, which its own delete leaves waiting.
func (l *Latch) Delete(ctx context.Context) (bool, error) {
	n, err := l.run(ctx, "delete", latchDeleteScript, l.c.publish)
	return n == 1, err
}

func (l *Latch) run(ctx context.Context, operation string, by *wire.Script, args ...string) (int, error) {
	value, err := l.c.send(ctx, l.c.run(by, []string{l.name, l.channel}, args...), nil)
	if err != nil {
		return 0, failed(operation, l.name, err)
	}
	n, err := count(value)
	return n, failed(operation, l.name, err)
}
