//go:build soak

package redislock

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestDeadCrowd: a hundred clients, a connection each, are killed while they wait. A live one behind
// them has the name at once where the server sees that they are gone, and else after three polls at
// most (P7): also if the server's clock was set back since.
func TestDeadCrowd(t *testing.T) {
	const dead = 100
	for name, c := range map[string]struct {
		acl  []string // what the users may not do
		back time.Duration
		most time.Duration // in polls
	}{
		"the server sees it":           {},
		"PUBLISH is refused":           {acl: []string{"-publish"}, most: 3},
		"PUBSUB is refused too":        {acl: []string{"-publish", "-pubsub"}, most: 3},
		"the clock was set back too":   {acl: []string{"-publish"}, back: time.Hour, most: 3},
		"it was set back, and is seen": {back: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlainTest(t)
			poll := p.caps.PollInterval()
			if c.acl != nil {
				p.clock.conn.do(t, append([]string{"ACL", "SETUSER", "default"}, c.acl...)...)
			}
			g := p.take(p.request("holder"))
			var crowd []*client
			for i := range dead {
				one := open(t, dialResp(t, p.clock.conn.address), &Options{Clock: p.clock})
				if held := p.enqueue(one, fmt.Sprint("dead ", i)); held.Ahead != i || held.Queued != i+1 {
					t.Fatalf("place %d has %d ahead, of %d", i, held.Ahead, held.Queued)
				}
				crowd = append(crowd, one)
				p.clock.advance(t, poll/dead)
			}
			p.enqueue(p.client, "live")
			for _, one := range crowd {
				one.Close()
				for c.acl == nil && p.clock.conn.do(t, "PUBLISH", one.layout.channel(one.id), "?") != int64(0) {
				} // until the server knows
			}
			p.clock.advance(t, -c.back)
			p.enqueue(p.client, "live")
			p.release(g, nil)
			began := p.clock.now
			for {
				if _, err := p.Enqueue(t.Context(), driver.Request{Name: "n", Owner: "live", TTL: 10 * time.Second}); err == nil {
					break
				} else if !errors.Is(err, driver.ErrHeld) {
					t.Fatal(err)
				}
				if p.clock.now.Sub(began) > c.most*poll {
					t.Fatalf("P7: after %v the live client waits still", p.clock.now.Sub(began))
				}
				p.clock.advance(t, poll/8)
			}
			t.Logf("after %v", p.clock.now.Sub(began))
		})
	}
}

// TestRecall: a waiter that was to confirm its place late is told to do so as soon as fewer than 128 are ahead, and the
// place then ends after two polls.
func TestRecall(t *testing.T) {
	p := newPlainTest(t)
	poll, far := p.caps.PollInterval(), "w"+strconv.Itoa(2*driver.FarBehind)
	lasts := func(want time.Duration) {
		t.Helper()
		us, _ := strconv.ParseFloat(p.clock.conn.do(t, "ZSCORE", p.layout.keys("n")[2], far).(string), 64)
		if got := time.Duration(us)*time.Microsecond - time.Duration(p.clock.now); got != want {
			t.Errorf("the place lasts %v, want %v", got, want)
		}
	}
	p.take(p.request("holder"))
	var ahead []driver.Grant
	for i := range 2*driver.FarBehind + 1 {
		p.enqueue(p.client, "w"+strconv.Itoa(i))
		ahead = append(ahead, driver.Grant{Request: driver.Request{Name: "n", Owner: "w" + strconv.Itoa(i)}})
	}
	lasts(2*poll + poll)
	p.Release(t.Context(), ahead[:driver.FarBehind+1])
	lasts(2 * poll)
	if _, err := p.Wait(t.Context(), driver.Request{Name: "n", Owner: far}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P7: the waiter is not told: %v", err)
	}
}

// TestWorkDoesNotGrow: a place, a sign of life and a hand-over are as many commands for the server
// when three wait as when three hundred do, but for two of a hand-over.
func TestWorkDoesNotGrow(t *testing.T) {
	calls := regexp.MustCompile(`calls=(\d+)`)
	count := func(t *testing.T, crowd int) (counts [3]int) {
		p := newPlainTest(t)
		g := p.take(p.request("holder"))
		for i := range crowd {
			p.enqueue(p.client, "w"+strconv.Itoa(i))
		}
		p.release(g, nil)
		next, err := p.Wait(t.Context(), driver.Request{Name: "n", Owner: "w0", TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range []func(){
			func() { p.enqueue(p.client, "new") },
			func() { p.enqueue(p.client, "w2") },
			func() { p.release(next, nil) },
		} {
			p.clock.conn.do(t, "CONFIG", "RESETSTAT")
			step()
			for _, m := range calls.FindAllStringSubmatch(p.clock.conn.do(t, "INFO", "commandstats").(string), -1) {
				n, _ := strconv.Atoi(m[1])
				counts[i] += n
			}
		}
		return counts
	}
	var few, many [3]int
	t.Run("few", func(t *testing.T) { few = count(t, 3) })
	t.Run("many", func(t *testing.T) { many = count(t, 300) })
	few[2] += 2 // which say whether the place that has come near is to be recalled
	if few != many || slices.Max(few[:]) > 20 {
		t.Errorf("a place, a sign of life and a hand-over are %v commands when three wait, and %v when three hundred do", few, many)
	}
	t.Logf("a place, a sign of life and a hand-over are %v commands", few)
}
