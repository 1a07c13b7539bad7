//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// handClock is a clock that stands still, and so shows what tokens owe to the record alone.
type handClock struct{ now driver.Instant }

func (c *handClock) Now() driver.Instant { return c.now }

// openAt opens a client whose clock stands still.
func openAt(t *testing.T, dir string, clock *handClock) *client {
	t.Helper()
	d, err := Open(context.Background(), Options{Dir: dir, Clock: clock})
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d.(*client)
}

// block takes x with a block of tokens.
func block(t *testing.T, c *client) driver.Grant {
	t.Helper()
	r := request("x")
	r.Tokens = tokenBlock
	g, err := c.Try(t.Context(), r)
	if err != nil || g.Block != tokenBlock {
		t.Fatalf("Try for a block of tokens: %+v, %v", g, err)
	}
	return g
}

// next takes x and asserts which token it has.
func next(t *testing.T, c *client, want driver.Token, why string) driver.Grant {
	t.Helper()
	g, err := c.Try(t.Context(), request("x"))
	if err != nil || g.Token != want || g.Block != 1 {
		t.Fatalf("P3: %s: the next hold is %+v, %v, want token %d", why, g, err, want)
	}
	return g
}

// TestTokensOfAnIdleRecord: the record of an idle name is not deleted before the time has come
// to its last token.
func TestTokensOfAnIdleRecord(t *testing.T) {
	dir := t.TempDir()
	clock := &handClock{driver.HostClock.Now()}
	c, gone := openAt(t, dir, clock), openAt(t, dir, clock)
	must(t, c.attach(t.Context()))
	g := block(t, gone)
	must(t, gone.Close()) // which counts as if all of the block was used
	clean := func() bool {
		c.clean("x")
		_, err := os.Stat(filepath.Join(dir, namesName, "x.lock"))
		return errors.Is(err, os.ErrNotExist)
	}
	for range 2 {
		if clean() {
			t.Error("P3: a record was deleted with tokens that are ahead of the time")
		}
		clock.now += driver.Instant((tokenBlock - 1) * time.Microsecond)
	}
	clock.now = clock.now.Add(-(tokenBlock-1)*time.Microsecond + time.Microsecond)
	// The client may have found the other one alive as that was closed: it believes so for aliveFor.
	for end := time.Now().Add(time.Minute); !clean(); time.Sleep(aliveFor) {
		if time.Now().After(end) {
			t.Fatal("P9: the idle record was not deleted")
		}
	}
	next(t, c, g.Token+tokenBlock, "the record was deleted")
}

// TestTokensAfterAReboot: tokens go on beyond the blocks that there are records of, whatever
// the wall clock says then.
func TestTokensAfterAReboot(t *testing.T) {
	dir := t.TempDir()
	attachTest(t, dir).Close()
	path := filepath.Join(dir, bootFile(hash(bootOf(t))))
	text, err := os.ReadFile(path)
	must(t, err)
	then, err := parseBoot(string(text))
	must(t, err)
	then += int64(time.Hour) // as if the wall clock was set back by an hour since
	must(t, os.WriteFile(path, []byte(bootText(then)), 0o600))
	p := obeying(t, dir)
	token, err := strconv.ParseInt(p.Ask("ok", "block x"), 10, 64)
	must(t, err)
	p.Kill()
	reboot(t, dir)
	g, err := openAt(t, dir, &handClock{driver.HostClock.Now()}).Try(t.Context(), request("x"))
	if err != nil || g.Token < driver.Token(token+tokenBlock) {
		t.Errorf("P3: after a reboot the hold is %+v, %v; the one before had %d tokens from %d", g, err, tokenBlock, token)
	}
}
