package bench

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	syncrueidis "github.com/go-redsync/redsync/v4/redis/rueidis"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidiscompat"
	"github.com/redis/rueidis/rueidislock"

	_ "github.com/holdfastlock/holdfast/redislock"
)

var redisStore = store{
	name: "redis", title: "Redis", floor: "raw rueidis", work: redisWork,
	url: func(addr string) string { return "redis://" + addr },
	peers: []peer{
		{name: "raw rueidis", can: pairs, open: openRaw},
		{name: "redsync on rueidis", can: all, open: func(_ context.Context, addr string) (locker, error) {
			client, err := newRueidis(addr)
			if err != nil {
				return nil, err
			}
			return redsynced(syncrueidis.NewPool(rueidiscompat.NewAdapter(client))), nil
		}},
		{name: "rueidislock", can: all, open: openRueidislock},
	},
}

func newRueidis(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, DisableRetry: true})
}

// compareAndDelete is how a lock without queue and token is released.
const compareAndDelete = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`

// openRaw is a lock without token, queue and notification: the floor.
func openRaw(_ context.Context, addr string) (locker, error) {
	client, err := newRueidis(addr)
	if err != nil {
		return nil, err
	}
	script := rueidis.NewLuaScript(compareAndDelete)
	return func(ctx context.Context, name string) (hold, error) {
		err := client.Do(ctx, client.B().Set().Key(name).Value(owner).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error()
		return hold{release: func() error { return script.Exec(ctx, client, []string{name}, []string{owner}).Error() }}, err
	}, nil
}

// redsynced is redsync with its own delays between attempts.
func redsynced(pools ...redsyncredis.Pool) locker {
	const untilDone = 1 << 30
	locks := redsync.New(pools...)
	return func(ctx context.Context, name string) (hold, error) {
		m := locks.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(untilDone))
		return hold{release: func() error { _, err := m.Unlock(); return err }}, m.LockContext(ctx)
	}
}

// openRueidislock opens rueidislock with its own times.
func openRueidislock(_ context.Context, addr string) (locker, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyMajority: 2,
	})
	return func(ctx context.Context, name string) (hold, error) {
		_, cancel, err := locks.WithContext(ctx, name)
		return hold{release: func() error { cancel(); return nil }}, err
	}, err
}

var (
	commandLine = regexp.MustCompile(`total_commands_processed:(\d+)`)
	scriptLine  = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)
)

// redisWork asks the server what it has done. The commands that scripts run count too.
func redisWork(ctx context.Context, addr string) (s served, err error) {
	client := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, Protocol: 2, MaxRetries: -1})
	defer client.Close()
	info, err := client.Do(ctx, "INFO", "everything").Text()
	if err != nil {
		return s, err
	}
	sum := func(line *regexp.Regexp) (n int64) {
		for _, m := range line.FindAllStringSubmatch(info, -1) {
			calls, _ := strconv.ParseInt(m[1], 10, 64)
			n += calls
		}
		return n
	}
	if s = (served{sum(commandLine), sum(scriptLine)}); s.commands == 0 {
		err = fmt.Errorf("INFO has no count of commands: %.200q", info)
	}
	return s, err
}
