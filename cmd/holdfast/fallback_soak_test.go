//go:build soak && linux

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestFallbackServerGone ends or stops a real server under processes that hold and wait. The holder
// loses the lock before the waiter has it from the second store; after the server is back the
// first store is used.
func TestFallbackServerGone(t *testing.T) {
	for name, gone := range map[string]struct{ away, back func(*testserver.Redis) }{
		"killed": {(*testserver.Redis).Kill, (*testserver.Redis).Start},
		"paused": {(*testserver.Redis).Pause, (*testserver.Redis).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			w, server := redisWorld(t, testserver.RedisOptions{AOF: true})
			w.env = append(w.env, "HOLDFAST_FALLBACK=file://"+w.path("second"))
			stamps, next := w.path("stamps"), w.path("next")
			holder := w.start("run", "--ttl", lossTTL, "x", "--", "stamp", stamps)
			awaitStamps(t, stamps)
			waiter := w.start("run", "--ttl", lossTTL, "x", "--", "stamp", next)
			w.awaitQueue("x", 1)
			gone.away(server)
			holder.ends(76)
			awaitStamps(t, next)
			goneBefore(t, next, stamps)
			if !strings.Contains(waiter.err.String(), "is held in the second store") {
				t.Errorf("the waiter wrote %q", waiter.err.String())
			}
			// A process that is started now finds a server that is down.
			late := w.start("run", "-w", "1ms", "--ttl", lossTTL, "x", "--", "true")
			late.ends(75)
			gone.back(server)
			await(t, "the way back", func() bool { return strings.Contains(waiter.err.String(), "answers again") })
			w.run(75, "run", "-n", "x", "--", "true")
			waiter.signal(sigTERM) // stamp goes on; its lock is broken off with it
			waiter.signal(9)
			w.run(0, "run", "-w", "20s", "--ttl", lossTTL, "x", "--", "sh", "-c", "[ $HOLDFAST_TOKEN != 0 ]")
			for _, p := range []*process{holder, waiter, late} {
				p.hidesPassword()
			}
		})
	}
}

// TestFallbackAfter: a user whom two holders at the same time do not harm need not wait.
func TestFallbackAfter(t *testing.T) {
	w := newWorld(t)
	dead, second := "redis://127.0.0.1:1", "file://"+w.path("second")
	began := time.Now()
	p := w.run(0, "--store", dead, "run", "-n", "--fallback", second, "--fallback-after", "0s", "x", "--", "sh", "-c", "echo $HOLDFAST_TOKEN")
	p.expectOut("0\n")
	p.expectErr("redis://127.0.0.1:1 does not answer")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	nested := w.run(69, "--store", dead, "run", "-n", "--fallback", second, "--fallback-after", "0s", "x", "--",
		"holdfast", "--store", dead, "run", "--fallback", second, "--fallback-after", "0s", "x", "--", "true")
	if !strings.Contains(nested.err.String(), "it would wait for itself") {
		t.Errorf("it wrote %q", nested.err.String())
	}
	w.run(69, "--store", dead, "run", "-n", "x", "--", "true") // without a second store
}
