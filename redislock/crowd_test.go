package redislock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// enqueue takes a place, or confirms it, and returns what the store says.
func (p *plainTest) enqueue(c *client, owner string) *driver.HeldError {
	p.Helper()
	held := (*driver.HeldError)(nil)
	req := driver.Request{Name: "n", Owner: owner, TTL: 10 * time.Second}
	if g, err := c.Enqueue(p.Context(), req); !errors.As(err, &held) {
		p.Fatalf("Enqueue of %s gave %+v, %v", owner, g, err)
	}
	return held
}

// TestKeysEnd: all keys of a name end by themselves; when nobody uses it there is one only (P9).
func TestKeysEnd(t *testing.T) {
	p := newPlainTest(t)
	keys := func() (there []string) {
		t.Helper()
		for _, key := range p.layout.keys("n") {
			ms, _ := p.clock.conn.do(t, "PTTL", key).(int64)
			if ms == -2 {
				continue
			}
			there = append(there, key)
			if ms <= 0 || ms > 25*60*1000 {
				t.Errorf("%s ends in %d ms", key, ms)
			}
		}
		return there
	}
	withdraw := func(owner string) { p.release(driver.Grant{Request: driver.Request{Name: "n", Owner: owner}}, nil) }
	for round := range 40 {
		g := p.try("holder", nil)
		for i := range 3 {
			p.enqueue(p.client, fmt.Sprint("waiter ", round, " ", i))
		}
		withdraw("late " + strconv.Itoa(round))
		if got := keys(); len(got) != len(suffixes) {
			t.Errorf("there are %q", got)
		}
		for i := range 3 {
			withdraw(fmt.Sprint("waiter ", round, " ", i))
		}
		p.release(g, nil)
		p.clock.advance(t, withdrawnFor)
		// The tombstones of this round end now; they take no more room than those of two rounds.
		if n := p.clock.conn.do(t, "ZCARD", p.layout.keys("n")[4]).(int64); n > 8 {
			t.Fatalf("after round %d there are %d tombstones", round, n)
		}
	}
	p.clock.conn.do(t, "DEL", p.layout.keys("n")[4]) // as when they have ended by the server's own clock
	p.release(p.take(p.request("last")), nil)
	if got := keys(); !slices.Equal(got, []string{p.layout.record("n")}) {
		t.Errorf("of an idle name there are %q", got)
	}
}

// TestKeysAreDeclared: scripts use no keys but those that they declare, which is what a cluster wants.
func TestKeysAreDeclared(t *testing.T) {
	p := newPlainTest(t)
	monitor, err := net.Dial("tcp", p.clock.conn.address)
	if err != nil {
		t.Fatal(err)
	}
	defer monitor.Close()
	seen := bufio.NewScanner(monitor)
	if io.WriteString(monitor, "MONITOR\r\n"); !seen.Scan() {
		t.Fatal(seen.Err())
	}
	g := p.take(p.request("holder"))
	p.enqueue(p.client, "a")
	p.enqueue(p.client, "b")
	p.enqueue(p.client, "a")
	p.Renew(t.Context(), []driver.Grant{g})
	p.release(g, nil)
	g, err = p.Wait(t.Context(), driver.Request{Name: "n", Owner: "a", TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	p.Downgrade(t.Context(), g)
	p.Inspect(t.Context(), "n")
	p.Break(t.Context(), "n", g.Token)
	p.release(g, driver.ErrBroken)
	p.release(driver.Grant{Request: p.request("b")}, nil)
	p.clock.conn.do(t, "PING", "the end")

	words := regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	declared, used := map[string]bool{}, map[string]int{}
	for {
		if !seen.Scan() {
			t.Fatal(seen.Err())
		}
		line := seen.Text()
		if strings.Contains(line, `"the end"`) {
			break
		}
		args := words.FindAllString(line, -1)
		for i := range args {
			if args[i], err = strconv.Unquote(args[i]); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		switch command := strings.ToUpper(args[0]); {
		case !strings.Contains(line, " lua]"):
			if command == "EVALSHA" || command == "EVAL" {
				n, _ := strconv.Atoi(args[2])
				declared = map[string]bool{clockKey: true} // of this test
				for _, key := range args[3 : 3+n] {
					declared[key] = true
				}
			}
		case command != "PUBLISH" && command != "PUBSUB" && command != "TIME":
			used[command]++
			if !declared[args[1]] {
				t.Errorf("a script uses %s of %q, and declares %q", command, args[1], slices.Collect(maps.Keys(declared)))
			}
		}
	}
	if len(used) < 10 {
		t.Errorf("of the scripts' commands only %v were seen", used)
	}
}
