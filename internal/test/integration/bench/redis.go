package bench

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	syncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/redislock"
)

// ttl is how long a hold lasts unless it is renewed, for all peers.
const ttl = 30 * time.Second

func init() {
	stores["redis"] = &store{
		name: "redis", floor: "raw rueidis", ours: "holdfast", work: redisWork,
		peers: []peer{
			{name: "raw rueidis", open: openRaw, skips: notPairs},
			{name: "raw rueidis, endless context", open: openRawEndless, skips: append([]string{"pair64"}, notPairs...)},
			{name: "holdfast", open: openHoldfastRedis},
			{name: "holdfast, endless context", open: openHoldfastEndless, skips: append([]string{"pair64"}, notPairs...)},
			{name: "redsync on go-redis", open: openRedsyncGoRedis, skips: []string{"hold"}},
			{name: "redsync on rueidis", open: openRedsyncRueidis, skips: []string{"hold"}},
			{name: "bsm/redislock", open: openBSM, skips: []string{"hold"}},
			{name: "rueidislock", open: openRueidislock(2, false)},
			{name: "rueidislock, majority 1, NoLoop", open: openRueidislock(1, true)},
		},
	}
}

func newRueidis(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
}

// raw is a lock without token, queue and notification: the floor.
type raw struct {
	client  rueidis.Client
	release *rueidis.Lua
}

func openRaw(_ context.Context, addr string) (Locker, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return nil, err
	}
	return &raw{client, rueidis.NewLuaScript(
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)}, nil
}

func (r *raw) Lock(ctx context.Context, name string) (func() error, error) {
	const owner = "an owner of 26 characters."
	if err := r.client.Do(ctx, r.client.B().Set().Key(name).Value(owner).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error(); err != nil {
		return nil, err
	}
	return func() error { return r.release.Exec(ctx, r.client, []string{name}, []string{owner}).Error() }, nil
}

// endless is a locker where contexts cannot end.
type endless struct{ Locker }

func openRawEndless(ctx context.Context, addr string) (Locker, error) {
	l, err := openRaw(ctx, addr)
	return endless{l}, err
}

func (r endless) Lock(ctx context.Context, name string) (func() error, error) {
	return r.Locker.Lock(context.WithoutCancel(ctx), name)
}

func openHoldfastEndless(ctx context.Context, addr string) (Locker, error) {
	l, err := openHoldfastRedis(ctx, addr)
	return endless{l}, err
}

func (r *raw) Close() error { r.client.Close(); return nil }

// ours is Holdfast over any store.
type ours struct{ client *holdfast.Client }

func openHoldfastRedis(ctx context.Context, addr string) (Locker, error) {
	return openHoldfast(ctx, "redis://"+addr)
}

func openHoldfast(ctx context.Context, url string) (Locker, error) {
	client, err := holdfast.Open(ctx, url)
	return ours{client}, err
}

func (o ours) Lock(ctx context.Context, name string) (func() error, error) {
	lease, err := o.client.Mutex(name, nil).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

func (o ours) Hold(ctx context.Context, name string) (func() bool, error) {
	lease, err := o.client.Mutex(name, nil).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return func() bool { return lease.Err() != nil }, nil
}

func (o ours) Close() error { return o.client.Close() }

// redsynced is redsync with its own delays between attempts.
type redsynced struct {
	locks *redsync.Redsync
	close func() error
}

func openRedsyncGoRedis(_ context.Context, addr string) (Locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return &redsynced{redsync.New(syncgoredis.NewPool(client)), client.Close}, nil
}

func openRedsyncRueidis(_ context.Context, addr string) (Locker, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return nil, err
	}
	locks := redsync.New(syncrueidis.NewPool(rueidiscompat.NewAdapter(client)))
	return &redsynced{locks, func() error { client.Close(); return nil }}, nil
}

func (r *redsynced) Lock(ctx context.Context, name string) (func() error, error) {
	const untilDone = 1 << 30
	m := r.locks.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(untilDone))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error { _, err := m.Unlock(); return err }, nil
}

func (r *redsynced) Close() error { return r.close() }

// bsmlock is bsm/redislock, which asks its user for the delay: 100 ms, as in
// its README.
type bsmlock struct {
	client *redis.Client
	locks  *bsm.Client
}

func openBSM(_ context.Context, addr string) (Locker, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return &bsmlock{client, bsm.New(client)}, nil
}

func (b *bsmlock) Lock(ctx context.Context, name string) (func() error, error) {
	// Without a deadline it would give up after the TTL.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	l, err := b.locks.Obtain(ctx, name, ttl,
		&bsm.Options{RetryStrategy: bsm.LinearBackoff(100 * time.Millisecond)})
	if err != nil {
		return nil, err
	}
	return func() error { return l.Release(context.Background()) }, nil
}

func (b *bsmlock) Close() error { return b.client.Close() }

// tracked is rueidislock with its own times.
type tracked struct{ locks rueidislock.Locker }

func openRueidislock(majority int32, noLoop bool) func(context.Context, string) (Locker, error) {
	return func(_ context.Context, addr string) (Locker, error) {
		locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
			KeyMajority:  majority, NoLoopTracking: noLoop,
		})
		return &tracked{locks}, err
	}
}

func (t *tracked) Lock(ctx context.Context, name string) (func() error, error) {
	_, cancel, err := t.locks.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return func() error { cancel(); return nil }, nil
}

func (t *tracked) Hold(ctx context.Context, name string) (func() bool, error) {
	held, _, err := t.locks.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return func() bool { return held.Err() != nil }, nil
}

func (t *tracked) Close() error { t.locks.Close(); return nil }

var (
	commandLine = regexp.MustCompile(`total_commands_processed:(\d+)`)
	memoryLine  = regexp.MustCompile(`used_memory:(\d+)`)
	clientsLine = regexp.MustCompile(`connected_clients:(\d+)`)
	scriptLine  = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)
)

// redisWork asks the server what it has done. The commands that scripts run count too.
func redisWork(ctx context.Context, addr string) (served, error) {
	client := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, Protocol: 2, MaxRetries: -1})
	defer client.Close()
	info, err := client.Do(ctx, "INFO", "everything").Text()
	if err != nil {
		return served{}, err
	}
	commands, memory := commandLine.FindStringSubmatch(info), memoryLine.FindStringSubmatch(info)
	if commands == nil || memory == nil {
		return served{}, fmt.Errorf("INFO has no count of commands or no size: %.200s",
			strings.ReplaceAll(info, "\n", " "))
	}
	s := served{commands: number(commands[1]), memory: number(memory[1])}
	if m := clientsLine.FindStringSubmatch(info); m != nil {
		s.connections = number(m[1]) - 1
	}
	for _, m := range scriptLine.FindAllStringSubmatch(info, -1) {
		s.scripts += number(m[1])
	}
	return s, nil
}

// number reads decimal digits.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}
