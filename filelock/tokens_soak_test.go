//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestTokensAfterAKill: nobody knows how many tokens of its block a killed process has used.
func TestTokensAfterAKill(t *testing.T) {
	dir := t.TempDir()
	c := openAt(t, dir, &handClock{driver.HostClock.Now()}) // it never comes to the time of the kill
	p := obeying(t, dir)
	token, err := strconv.ParseInt(p.ask("ok", "block x"), 10, 64)
	must(t, err)
	p.ask("ok", "pass 5") // and on and on, without a word to the store
	p.kill()
	time.Sleep(aliveFor)
	next(t, c, driver.Token(token+tokenBlock), "the process with the block was killed")
}
