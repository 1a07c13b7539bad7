//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestInspectFollowsThePath: who only looks sees the directory that is there now.
func TestInspectFollowsThePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locks")
	c := openTest(t, dir)
	for round := range 3 {
		p := obeying(t, dir)
		p.ask("ok", "try x%d 1m 0s", round)
		info, err := c.Inspect(t.Context(), fmt.Sprint("x", round))
		if err != nil || len(info.Holders) != 1 {
			t.Errorf("round %d: %+v, %v", round, info, err)
		}
		p.kill()
		must(t, os.RemoveAll(dir))
		if info, err := c.Inspect(t.Context(), fmt.Sprint("x", round)); err != nil || !info.Idle() {
			t.Errorf("round %d: after the deletion %+v, %v", round, info, err)
		}
	}
}
