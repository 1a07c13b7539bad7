//go:build soak

package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/redislock"
)

// goPeer is a peer in Go: this program, started again.
type goPeer interface {
	lock(ctx context.Context, name string, ttl time.Duration) (bool, error)
	extend(ctx context.Context, ttl time.Duration) (bool, error)
	unlock(ctx context.Context) (bool, error)
	// wait returns when the lock is held, and how to end that.
	wait(ctx context.Context, name string) (unlock func() error, err error)
}

// goPeers make the peers in Go.
var goPeers = map[string]func(address string, client *redis.Client) (goPeer, error){
	"holdfast":      newHoldfast,
	"redsync":       func(_ string, c *redis.Client) (goPeer, error) { return &redsyncPeer{pool: goredis.NewPool(c)}, nil },
	"bsm-redislock": func(_ string, c *redis.Client) (goPeer, error) { return &bsmPeer{client: bsm.New(c)}, nil },
}

// serve is the program of a peer in Go. Its arguments are those of the other languages' peers.
func serve(kind, address string) error {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: address})
	peer, err := goPeers[kind](address, client)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer, err := obey(ctx, client, peer, strings.Fields(lines.Text()))
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		fmt.Println(answer)
	}
	return nil
}

// obey carries out one command.
func obey(ctx context.Context, client *redis.Client, peer goPeer, words []string) (string, error) {
	switch words[0] {
	case "lock":
		ok, err := peer.lock(ctx, words[1], milliseconds(words[2]))
		return choose(ok, "held", "busy"), err
	case "extend":
		ok, err := peer.extend(ctx, milliseconds(words[1]))
		return choose(ok, "ok", "lost"), err
	case "unlock":
		ok, err := peer.unlock(ctx)
		return choose(ok, "ok", "lost"), err
	case "count":
		n, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return "ok", count(ctx, client, peer, words[1], words[2], n)
	case "set":
		return "ok", client.Set(ctx, words[1], words[2], 0).Err()
	}
	return "", errors.New("no such command")
}

func milliseconds(text string) time.Duration {
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Millisecond
}

func choose(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}

func count(ctx context.Context, client *redis.Client, peer goPeer, name, key string, n int) error {
	for range n {
		unlock, err := peer.wait(ctx, name)
		if err != nil {
			return err
		}
		number, err := client.Get(ctx, key).Int()
		if err != nil && err != redis.Nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
		if err := client.Set(ctx, key, number+1, 0).Err(); err != nil {
			return err
		}
		if err := unlock(); err != nil {
			return err
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
	return nil
}

// holdfastPeer is Holdfast.
type holdfastPeer struct {
	client *holdfast.Client
	lease  *holdfast.Lease
}

func newHoldfast(address string, _ *redis.Client) (goPeer, error) {
	client, err := holdfast.Open(context.Background(), "redis://"+address+"?hf.layout=setnx")
	return &holdfastPeer{client: client}, err
}

func (p *holdfastPeer) lock(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	lease, err := p.client.Mutex(name, &holdfast.Options{TTL: ttl}).TryAcquire(ctx)
	if errors.Is(err, holdfast.ErrHeld) {
		return false, nil
	}
	p.lease = lease
	return err == nil, err
}

func (p *holdfastPeer) extend(ctx context.Context, _ time.Duration) (bool, error) {
	return kept(p.lease.Renew(ctx), holdfast.ErrLost)
}

func (p *holdfastPeer) unlock(context.Context) (bool, error) {
	return kept(p.lease.Release(), holdfast.ErrLost)
}

// kept reports whether a call has succeeded, and no error if it says that the lock was lost.
func kept(err, lost error) (bool, error) {
	if errors.Is(err, lost) {
		return false, nil
	}
	return err == nil, err
}

func (p *holdfastPeer) wait(ctx context.Context, name string) (func() error, error) {
	lease, err := p.client.Mutex(name, nil).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

// redsyncPeer is redsync. It gives a request a twentieth of the expiry, which is little for the short
// expiries of tests.
type redsyncPeer struct {
	pool  pool.Pool
	mutex *redsync.Mutex
}

func (p *redsyncPeer) lock(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	mutex := redsync.New(p.pool).NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTimeoutFactor(0.5))
	err := mutex.TryLockContext(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) {
		return false, nil
	}
	p.mutex = mutex
	return err == nil, err
}

func (p *redsyncPeer) extend(ctx context.Context, _ time.Duration) (bool, error) {
	ok, err := p.mutex.ExtendContext(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) || errors.Is(err, redsync.ErrExtendFailed) {
		return false, nil
	}
	return ok, err
}

func (p *redsyncPeer) unlock(ctx context.Context) (bool, error) {
	ok, err := p.mutex.UnlockContext(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return false, nil
	}
	return ok, err
}

func (p *redsyncPeer) wait(ctx context.Context, name string) (func() error, error) {
	mutex := redsync.New(p.pool).NewMutex(name,
		redsync.WithExpiry(30*time.Second), redsync.WithTries(1e6), redsync.WithRetryDelay(10*time.Millisecond))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error { _, err := mutex.UnlockContext(ctx); return err }, nil
}

// bsmPeer is bsm/redislock.
type bsmPeer struct {
	client *bsm.Client
	held   *bsm.Lock
}

func (p *bsmPeer) lock(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	held, err := p.client.Obtain(ctx, name, ttl, nil)
	if errors.Is(err, bsm.ErrNotObtained) {
		return false, nil
	}
	p.held = held
	return err == nil, err
}

func (p *bsmPeer) extend(ctx context.Context, ttl time.Duration) (bool, error) {
	return kept(p.held.Refresh(ctx, ttl, nil), bsm.ErrNotObtained)
}

func (p *bsmPeer) unlock(ctx context.Context) (bool, error) {
	return kept(p.held.Release(ctx), bsm.ErrLockNotHeld)
}

func (p *bsmPeer) wait(ctx context.Context, name string) (func() error, error) {
	o := &bsm.Options{RetryStrategy: bsm.LinearBackoff(10 * time.Millisecond)}
	held, err := p.client.Obtain(ctx, name, 30*time.Second, o)
	if err != nil {
		return nil, err
	}
	return func() error { return held.Release(ctx) }, nil
}
