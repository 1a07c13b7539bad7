//go:build soak

package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestRedis runs the cases through two client libraries.
func TestRedis(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	t.Run("rueidis", func(t *testing.T) {
		client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, DisableCache: true})
		testserver.Must(t, err)
		defer client.Close()
		runRedis(t, fence.Redis{Eval: rueidisEval(client)})
	})
	t.Run("go-redis", func(t *testing.T) {
		client := goredis.NewClient(&goredis.Options{Addr: server.Addr})
		defer client.Close()
		runRedis(t, fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
			return goredis.NewScript(script).Run(ctx, client, keys, args...).Result()
		}})
	})
}

// runRedis runs every case of the Redis guard on a scratch server, through the Eval of one client library.
func runRedis(t *testing.T, guard fence.Redis) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *redisBench)
	}{
		{"as a gate does", redisAsGate},
		{"the script's own keys and arguments", redisOwnArguments},
		{"no marks there", redisNoMarks},
		{"retain", redisRetain},
		{"bad use", redisBadUse},
		{"concurrent holders", redisConcurrentHolders},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, &redisBench{Redis: guard, t: t}) })
	}
}

// redisBench is the guard in one case.
type redisBench struct {
	fence.Redis
	t    *testing.T
	keys int
}

// resource returns the key of a new resource's data, and that of its marks.
func (b *redisBench) resource() (data, marks string) {
	b.keys++
	data = fmt.Sprintf("fencetest:%s:%d", strings.ReplaceAll(b.t.Name(), " ", "-"), b.keys)
	return data, "{" + data + "}:marks"
}

// ask runs a script without the guard.
func (b *redisBench) ask(script string, keys []string, args ...any) any {
	b.t.Helper()
	reply, err := b.Eval(b.t.Context(), script, keys, args...)
	if err != nil {
		b.t.Fatal(err)
	}
	return reply
}

// marks returns the marks as they are stored.
func (b *redisBench) marks(key string) (exclusive, shared driver.Token) {
	b.t.Helper()
	list, _ := b.ask("local r = {} for i, f in ipairs({'exclusive_mark', 'shared_mark'}) do r[i] = redis.call('HGET', KEYS[1], f) or '0' end return r", []string{key}).([]any)
	for i, mark := range []*driver.Token{&exclusive, &shared} {
		n, err := strconv.ParseInt(fmt.Sprint(list[i]), 10, 64)
		if err != nil {
			b.t.Fatal(err)
		}
		*mark = driver.Token(n)
	}
	return exclusive, shared
}

// The scripts of the cases.
const (
	get = "return redis.call('GET', KEYS[1]) or ''"
	set = "redis.call('SET', KEYS[1], ARGV[1]) return 1"
)

// redisAsGate offers the same tokens to a gate in memory and to the server. Verdicts, details of refusals and marks
// are the same.
func redisAsGate(t *testing.T, b *redisBench) {
	const steps, names = 4000, 8
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	var gates [names]fence.Gate
	var marks [names]string
	for i := range names {
		_, marks[i] = b.resource()
	}
	refused := 0
	for step := range steps {
		i, mode := random.IntN(names), driver.Mode(random.IntN(2))
		exclusive, shared := gates[i].Marks()
		// Around the marks, so that every verdict is met.
		token := max(exclusive, shared) + driver.Token(random.IntN(6)-4)
		want, err := gates[i].Admit(token, mode), b.Admit(t.Context(), marks[i], token, mode)
		for _, class := range []error{nil, fence.ErrStale, fence.ErrNoToken, fence.ErrInvalid} {
			if errors.Is(err, class) != errors.Is(want, class) {
				t.Fatalf("step %d, %v token %d at %d and %d: %v; the gate says %v", step, mode, token, exclusive, shared, err, want)
			}
		}
		if stale, ok := errors.AsType[*fence.StaleError](err); ok {
			refused++
			gate, _ := errors.AsType[*fence.StaleError](want)
			if gate.Resource = marks[i]; *stale != *gate {
				t.Fatalf("step %d: %+v; the gate says %+v", step, *stale, *gate)
			}
		}
		exclusive, shared = gates[i].Marks()
		if e, s := b.marks(marks[i]); e != exclusive || s != shared {
			t.Fatalf("step %d: marks %d and %d; the gate's are %d and %d", step, e, s, exclusive, shared)
		}
	}
	if refused < steps/20 {
		t.Errorf("of %d tokens %d were stale: too few to mean anything", steps, refused)
	}
}

// redisOwnArguments: the script sees its own keys and arguments and no others, of
// which there may be more than Lua can have in one call.
func redisOwnArguments(t *testing.T, b *redisBench) {
	_, marks := b.resource()
	args := make([]any, 20_000)
	for i := range args {
		args[i] = strconv.Itoa(i)
	}
	keys := []string{"{" + marks + "}a", "{" + marks + "}b"}
	reply, err := b.Do(t.Context(), marks, 1, driver.Exclusive, "return {#KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1], ARGV[#ARGV]}", keys, args...)
	if want := fmt.Sprint([]any{2, keys[0], keys[1], len(args), "0", "19999"}); err != nil || fmt.Sprint(reply) != want {
		t.Errorf("the script saw %v, want %v; %v", reply, want, err)
	}
	if reply, err = b.Do(t.Context(), marks, 1, driver.Shared, "return {#KEYS, #ARGV}", nil); err != nil || fmt.Sprint(reply) != "[0 0]" {
		t.Errorf("the script saw %v; %v", reply, err)
	}
}

// redisNoMarks: a key with something else is left alone, and no refusal.
func redisNoMarks(t *testing.T, b *redisBench) {
	data, _ := b.resource()
	b.ask("redis.call('SET', KEYS[1], 'text') return 1", []string{data})
	if err := b.Admit(t.Context(), data, 1, driver.Exclusive); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("marks in a string: %v", err)
	}
	hash, _ := b.resource()
	b.ask("redis.call('HSET', KEYS[1], 'shared_mark', 'never') return 1", []string{hash})
	if _, err := b.Do(t.Context(), hash, 1, driver.Exclusive, set, []string{data}, "new"); err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "no numbers") {
		t.Errorf("a mark that is text: %v", err)
	}
	if text := b.ask("return redis.call('GET', KEYS[1])", []string{data}); text != "text" {
		t.Errorf("the data are %v now", text)
	}
}

func redisRetain(t *testing.T, b *redisBench) {
	life := func(marks string) int64 {
		ms, _ := b.ask("return redis.call('PTTL', KEYS[1])", []string{marks}).(int64)
		return ms
	}
	_, kept := b.resource()
	if err := b.Admit(t.Context(), kept, 1, driver.Exclusive); err != nil || life(kept) != -1 {
		t.Errorf("without Retain the marks live for %d ms; %v", life(kept), err)
	}
	brief := fence.Redis{Eval: b.Eval, Retain: time.Hour}
	_, marks := b.resource()
	for _, token := range []driver.Token{2, 2, 1} { // used again without being raised, and refused
		b.ask("return redis.call('PEXPIRE', KEYS[1], 1000000)", []string{marks})
		err := brief.Admit(t.Context(), marks, token, driver.Exclusive)
		if ms := life(marks); token == 2 && (err != nil || ms < 3_590_000 || ms > 3_600_000) {
			t.Errorf("after a use the marks live for %d ms; %v", ms, err)
		} else if token == 1 && (!errors.Is(err, fence.ErrStale) || ms > 1_000_000) {
			t.Errorf("after a refusal the marks live for %d ms; %v", ms, err)
		}
	}
}

// redisBadUse: nothing of it reaches the server.
func redisBadUse(t *testing.T, b *redisBench) {
	asked := 0
	guard := fence.Redis{Eval: func(context.Context, string, []string, ...any) (any, error) { asked++; return nil, nil }}
	sharp := guard
	sharp.Retain = time.Microsecond
	for _, c := range []struct {
		err, want error
		says      string
	}{
		{err: guard.Admit(t.Context(), "m", 0, driver.Exclusive), want: fence.ErrNoToken},
		{err: guard.Admit(t.Context(), "m", -1, driver.Exclusive), want: fence.ErrInvalid},
		{err: guard.Admit(t.Context(), "m", 1<<53, driver.Shared), want: fence.ErrInvalid},
		{err: guard.Admit(t.Context(), "m", 1, driver.Slot), want: fence.ErrInvalid},
		{err: guard.Admit(t.Context(), "", 1, driver.Exclusive), want: fence.ErrInvalid},
		{err: sharp.Admit(t.Context(), "m", 1, driver.Exclusive), says: "Retain is 1µs"},
		{err: fence.Redis{}.Admit(t.Context(), "m", 1, driver.Exclusive), says: "Eval is nil"},
		{err: func() error {
			_, err := guard.Do(t.Context(), "m", 1, driver.Exclusive, "#!lua\nreturn 1", nil)
			return err
		}(), says: "#!"},
	} {
		if c.want != nil && !errors.Is(c.err, c.want) || c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%v, want %v, saying %q", c.err, c.want, c.says)
		}
	}
	if asked != 0 {
		t.Errorf("the server was asked %d times", asked)
	}
}

// redisConcurrentHolders is concurrentHolders: whatever falls between the read and
// the write of a holder, every acknowledged update is there.
func redisConcurrentHolders(t *testing.T, b *redisBench) {
	const rounds, workers, holds = 8, 6, 30
	total, stale := int64(0), atomic.Int64{}
	for range rounds {
		data, marks := b.resource()
		var tokens, acknowledged atomic.Int64
		var group sync.WaitGroup
		for range workers {
			group.Go(func() {
				for range holds {
					token := driver.Token(tokens.Add(1))
					text, err := b.Do(t.Context(), marks, token, driver.Exclusive, get, []string{data})
					if err == nil {
						n, _ := strconv.ParseInt(fmt.Sprint(text), 10, 64) // nothing is 0
						_, err = b.Do(t.Context(), marks, token, driver.Exclusive, set, []string{data}, strconv.FormatInt(n+1, 10))
					}
					switch {
					case err == nil:
						acknowledged.Add(1)
					case errors.Is(err, fence.ErrStale):
						stale.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		text := b.ask("return redis.call('GET', KEYS[1]) or '0'", []string{data})
		if n := acknowledged.Load(); text != strconv.FormatInt(n, 10) || n == 0 {
			t.Fatalf("%d updates acknowledged, %v there", n, text)
		}
		total += acknowledged.Load()
	}
	if stale.Load() == 0 {
		t.Error("no holder came between the steps of another")
	}
	t.Logf("of %d holders %d could finish, and %d were refused", rounds*workers*holds, total, stale.Load())
}
