//go:build soak && (linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package filelock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// TestInspectLeavesNoTrace: opening, listing and inspecting make, change and
// delete nothing, whatever there is to do.
func TestInspectLeavesNoTrace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	look := func(what string, dir, name string, check func(driver.Info) bool) {
		t.Helper()
		above := filepath.Dir(filepath.Dir(dir))
		before := snapshot(t, above)
		d, err := Open(t.Context(), Options{Dir: dir})
		must(t, err)
		c := d.(*client)
		info, err := c.Inspect(t.Context(), name)
		if err != nil || !check(info) {
			t.Errorf("%s: Inspect returned %+v, %v", what, info, err)
		}
		listed := false
		for info, err := range c.List(t.Context(), "") {
			must(t, err)
			listed = listed || info.Name == name
		}
		if listed == info.Idle() {
			t.Errorf("%s: %q is listed: %v; Inspect says %+v", what, name, listed, info)
		}
		must(t, c.Close())
		unchanged(t, above, before, what+": looking")
	}
	idle := func(i driver.Info) bool { return i.Idle() }
	look("a directory that does not exist", dir, "x", idle)
	must(t, os.MkdirAll(dir, 0o700))
	look("an empty directory", dir, "x", idle)

	p := obeying(t, dir)
	p.ask("ok", "try x 1m 0s")
	look("a hold", dir, "x", func(i driver.Info) bool { return len(i.Holders) == 1 })
	must(t, os.Remove(dir+"/holdfast"))
	look("a directory without marker", dir, "x", func(i driver.Info) bool { return len(i.Holders) == 1 })
	p.ask("ok", "try delayed 1m 1m")
	p.ask("ok", "try expired 10ms 0s")
	q := obeying(t, dir)
	q.ask("held", "queue x")
	look("a waiter", dir, "x", func(i driver.Info) bool { return len(i.Holders) == 1 && len(i.Waiters) == 1 })
	time.Sleep(10 * time.Millisecond)
	look("an expired hold", dir, "expired", idle)
	p.kill()
	time.Sleep(aliveFor)
	look("the hold of a killed client", dir, "x", func(i driver.Info) bool { return len(i.Holders) == 0 && len(i.Waiters) == 1 })
	look("a lock-delay", dir, "delayed", func(i driver.Info) bool { return len(i.Holders) == 0 && i.ClosedFor > 0 })
	q.kill()
	time.Sleep(aliveFor)
	look("a killed waiter", dir, "x", idle)
	reboot(t, dir)
	look("another boot", dir, "delayed", func(i driver.Info) bool { return len(i.Holders) == 0 && i.ClosedFor > 0 })
	halfMoved(t, dir, "delayed")
	look("a record that is being moved", dir, "delayed", func(i driver.Info) bool { return len(i.Holders) == 0 && i.ClosedFor > 0 })
}

// halfMoved leaves a record as a thief does that dies at its work.
func halfMoved(t testing.TB, dir, name string) {
	t.Helper()
	names, err := openFolder(filepath.Join(dir, "names"))
	must(t, err)
	defer names.close()
	temp, fd, err := names.temporary()
	must(t, err)
	defer closeFD(fd)
	path := names.at(fileName(name))
	must(t, pwrite(fd, appendHeader(nil, textStart, moving, nil), 0), os.Link(path, path+oldSuffix), os.Rename(names.at(temp), path))
}
