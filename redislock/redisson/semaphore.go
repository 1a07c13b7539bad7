package redisson

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/redislock"
	rules "github.com/holdfastlock/holdfast/redislock/internal/redisson"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Semaphore is a number of free permits that programs take and give back: Redisson's RSemaphore. It is a
// string at its name. Nobody is known to have a permit, so a program that is killed leaves its permits taken.
// Safe for concurrent use.
type Semaphore struct {
	c             *Client
	name, channel string
	leases        string // the key of an RPermitExpirableSemaphore of that name
}

// Semaphore returns the semaphore of a name, and asks no server. Names are those of locks, without a prefix.
// In a cluster it refuses names that Redisson handles wrongly there: some of those with braces.
func (c *Client) Semaphore(name string) (*Semaphore, error) {
	s := &Semaphore{c, name, rules.SemaphoreChannel(name), rules.PermitTimeouts(name)}
	if err := c.check(name, s.channel, s.leases); err != nil {
		return nil, failed("semaphore", name, err)
	}
	return s, nil
}

// Create makes the semaphore with so many free permits, 1 to MaxCount, and reports whether it has: it has
// not if there is one already. If ttl is not 0, the semaphore ends after that time, to the millisecond,
// whoever has permits. It is Redisson's trySetPermits.
func (s *Semaphore) Create(ctx context.Context, permits int, ttl time.Duration) (bool, error) {
	err := checkCount(permits)
	if ttl != 0 && ttl < time.Millisecond {
		err = fmt.Errorf("a life of %v is too short: at least 1 ms, or 0 for one without end", ttl)
	}
	if err != nil {
		return false, failed("create", s.name, err)
	}
	n, err := s.run(ctx, "create", createScript, strconv.Itoa(permits), s.c.publish, strconv.FormatInt(ttl.Milliseconds(), 10))
	return n == 1, err
}

// TryAcquire takes so many permits, 1 to MaxCount, all or none, and does not wait. It reports whether it has
// them. If ctx ends before the server answers, the permits are given back when it does.
func (s *Semaphore) TryAcquire(ctx context.Context, permits int) (bool, error) {
	ok, err := s.acquire(ctx, permits)
	return ok, failed("acquire", s.name, err)
}

// Acquire waits for so many permits, 1 to MaxCount, and takes them all. If ctx ends first, it takes none, and
// returns the error of ctx. It waits also while nobody has created the semaphore. If the connection is lost
// when the request was sent, the permits may be taken for good: then the error is ErrUncertain, or that of ctx
// if it ended before.
func (s *Semaphore) Acquire(ctx context.Context, permits int) error {
	if ok, err := s.acquire(ctx, permits); ok || err != nil {
		return failed("acquire", s.name, err)
	}
	return failed("acquire", s.name, s.c.await(ctx, s.channel, permits, func() (bool, error) {
		return s.acquire(ctx, permits)
	}))
}

func (s *Semaphore) acquire(ctx context.Context, permits int) (bool, error) {
	if err := errors.Join(checkCount(permits), ctx.Err()); err != nil {
		return false, err
	}
	text := strconv.Itoa(permits)
	value, err := s.c.send(ctx, s.c.run(acquireScript, s.keys(), text), func(after context.Context, r redislock.Reply) {
		if r.Value == int64(1) {
			s.c.run(releaseScript, []string{s.name, s.channel}, text, s.c.publish)(after)
		}
	})
	if err != nil {
		return false, withoutEffect(err) // what was taken is given back
	}
	n, err := count(value)
	return n == 1, err
}

// Release gives so many permits back, 1 to MaxCount, and wakes waiters. It does not check that anybody has
// taken them. It is sent even if ctx has ended, and returns ErrUncertain then, without waiting for the answer.
// If there is no semaphore it returns ErrNoSemaphore, where Redisson's release makes one.
func (s *Semaphore) Release(ctx context.Context, permits int) error {
	if err := checkCount(permits); err != nil {
		return failed("release", s.name, err)
	}
	n, err := s.run(ctx, "release", releaseScript, strconv.Itoa(permits), s.c.publish)
	if err == nil && n == 0 {
		err = failed("release", s.name, ErrNoSemaphore)
	}
	return err
}

// Add makes so many permits more, or fewer if it is negative: then fewer than none may be free. It makes the
// semaphore if there is none. It is Redisson's addPermits.
func (s *Semaphore) Add(ctx context.Context, permits int) error {
	if permits < -MaxCount || permits > MaxCount {
		return failed("add", s.name, fmt.Errorf("%d: %d to %d are allowed", permits, -MaxCount, MaxCount))
	}
	_, err := s.run(ctx, "add", addScript, strconv.Itoa(permits), s.c.publish)
	return err
}

// Drain takes all permits that are free, and returns how many.
func (s *Semaphore) Drain(ctx context.Context) (int, error) { return s.run(ctx, "drain", drainScript) }

// Available returns how many permits are free: 0 also if there is no semaphore, and fewer after Add of a
// negative number.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	n, err := s.c.get(ctx, s.name)
	return n, failed("available", s.name, err)
}

func (s *Semaphore) keys() []string { return []string{s.name, s.channel, s.leases} }

func (s *Semaphore) run(ctx context.Context, operation string, by *wire.Script, args ...string) (int, error) {
	value, err := s.c.send(ctx, s.c.run(by, s.keys(), args...), nil)
	if err != nil {
		return 0, failed(operation, s.name, err)
	}
	n, err := count(value)
	return n, failed(operation, s.name, err)
}

// get returns the number at a key, 0 if there is none.
func (c *Client) get(ctx context.Context, key string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	value, err := c.send(ctx, func(ctx context.Context) redislock.Reply {
		return c.conn.Do(ctx, []redislock.Command{{Args: []string{"GET", key}, Key: key}})[0]
	}, nil)
	if err != nil || value == nil {
		return 0, withoutEffect(err)
	}
	text, _ := value.(string)
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: the key has a text that is no number", driver.ErrMismatch)
	}
	return int(n), nil
}
