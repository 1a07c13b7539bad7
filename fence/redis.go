package fence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Redis guards resources whose data are in Redis, or in a server that speaks its protocol and runs its Lua
// scripts. It imports no client library: the program provides Eval, a few lines for any of them.
//
// The guard and the work that it admits are one script, which the server runs as one step. So
//
//   - everything that touches the data is a script of [Redis.Do], reads included.
//     [Redis.Admit], and a command after it, are two steps;
//   - a script is not rolled back. The guard comes first and refuses before
//     anything is touched; if the work fails later, its first part stays done;
//   - work whose answer was lost may have been done, and some client libraries
//     then send it again. The same token is admitted again, so doing the work
//     twice must be harmless, as with SET and not with INCR.
//
// The marks of a resource are two fields, exclusive_mark and shared_mark, of a hash. Its key is the caller's
// choice: a key of its own, or the hash with the resource's own data. In Redis Cluster it must have the hash
// slot of the data, by a common hash tag: {stock:42}:marks for stock:42.
//
// # What it rests on
//
// Marks and data are in one server and are written in one step, so a restart or a fail-over that loses the
// last writes takes both back together. If the marks alone are lost, an old token is admitted: they may be
// evicted (any maxmemory-policy but noeviction), expire too soon (Retain), or their key is deleted or
// renamed. The guard may fence tokens of locks in any store; those must keep growing (promise P3). After a
// fail-over of a Redis whose replica's clock is behind they do not, and are refused until the clock has
// passed the marks.
//
// A Redis is a value that may be copied; it is safe for concurrent use if Eval is.
type Redis struct {
	// Eval runs a Lua script with keys and arguments, and returns its reply as the client library makes it. An
	// error that the script raises must come back as one whose text has the server's in it. Scripts are few and
	// never vary with keys and arguments, so a library's way to send them by their hash (EVALSHA) is right. With
	// go-redis:
	//
	//	func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
	//		return redis.NewScript(script).Run(ctx, client, keys, args...).Result()
	//	}
	//
	// Package internal/test/integration/fencetest has the same for rueidis, as an example.
	Eval func(ctx context.Context, script string, keys []string, args ...any) (any, error)
	// Retain is how long the marks are kept after their last use, at least 1 ms. It must be longer than any
	// pause, retry, queue and running piece of work of a client can be: days rather than minutes. It is the life
	// of the whole key, so with marks in the hash of the data it must be 0. 0 keeps them for ever.
	Retain time.Duration
}

// redisGuard begins every script.
//
//go:embed redis_guard.lua
var redisGuard string

// Admit adopts the token in the marks at a key, or refuses it with a *StaleError ([ErrStale]), [ErrNoToken]
// or [ErrInvalid]. After any other error, which is Eval's, wrapped, the token may have been adopted or not.
// Nothing keeps a newer token from being admitted after it: it is for the start of work that later goes
// through Do, and for resources that the script cannot reach.
func (r Redis) Admit(ctx context.Context, marks string, token driver.Token, mode driver.Mode) error {
	_, err := r.Do(ctx, marks, token, mode, "return 1", nil)
	return err
}

// Do admits the token and runs the caller's script as one step, and returns the script's reply. It returns
// Admit's errors without running the script, and the script's own errors, wrapped.
//
// The script sees its keys and args as KEYS and ARGV, without the guard's. Its text must not begin with #!,
// and values belong in args, not in the text. It should return something, because libraries make an error of
// nil.
func (r Redis) Do(ctx context.Context, marks string, token driver.Token, mode driver.Mode, script string, keys []string, args ...any) (any, error) {
	if err := r.check(marks, token, mode, script); err != nil {
		return nil, err
	}
	// The guard's own arguments come last, and the guard removes them.
	allKeys := append(append(make([]string, 0, len(keys)+1), keys...), marks)
	allArgs := append(append(make([]any, 0, len(args)+3), args...),
		strconv.FormatInt(r.Retain.Milliseconds(), 10), mode.String(), strconv.FormatInt(int64(token), 10))
	reply, err := r.Eval(ctx, redisGuard+script, allKeys, allArgs...)
	if err != nil {
		return nil, redisError(err, marks, token, mode)
	}
	return reply, nil
}

func (r Redis) check(marks string, token driver.Token, mode driver.Mode, script string) error {
	switch {
	case r.Eval == nil:
		return errors.New("fence: Redis.Eval is nil: it must run a script in Redis")
	case r.Retain != 0 && r.Retain < time.Millisecond:
		return fmt.Errorf("fence: Redis.Retain is %v: 0, or at least 1ms, is right", r.Retain)
	case marks == "":
		return fmt.Errorf("fence: a resource without a key for its marks %w", ErrInvalid)
	case strings.HasPrefix(script, "#!"):
		return errors.New("fence: the script begins with #!: it must be plain Lua, as the guard stands before it")
	}
	return checkToken(token, mode)
}

// stalePrefix begins the error of a refusal, before the mark.
const stalePrefix = "HOLDFASTSTALE "

// redisError finds a refusal in the text of an error.
func redisError(err error, marks string, token driver.Token, mode driver.Mode) error {
	if _, text, ok := strings.Cut(err.Error(), stalePrefix); ok {
		digits, _, _ := strings.Cut(text, " ")
		mark, _ := strconv.ParseInt(digits, 10, 64) // 0, if it cannot be read: not known
		return &StaleError{Resource: marks, Token: token, Mode: mode, Mark: driver.Token(mark)}
	}
	return fmt.Errorf("fence: %v token %d for %q: %w", mode, token, marks, err)
}
