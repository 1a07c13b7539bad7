//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

func TestOpenRefuses(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"file://":                    "no absolute directory",
		"file:locks":                 "no absolute directory",
		"file://host/locks":          `a host, "host"`,
		"file://locks":               "three slashes",
		"file://u:secret@/locks":     "more than a directory",
		"file:///locks#x":            "more than a directory",
		"file:///locks?hf.x=1":       `unknown URL parameter "hf.x"`,
		"file:///locks?mode=0700":    `unknown URL parameter "mode"`,
		"file://" + plain:            "not a directory",
		"file://" + plain + "/below": "not a directory",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		d, err := driver.Open(t.Context(), u)
		if err == nil {
			d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("opening %s: %v, which does not say %q", raw, err, want)
		}
	}
	for _, dir := range []string{"", "locks", "./locks"} {
		if _, err := Open(t.Context(), Options{Dir: dir}); err == nil {
			t.Errorf("Open took the directory %q", dir)
		}
	}
}

func TestOneStoreByAnyPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "locks %")
	u := &url.URL{Scheme: "file", Path: dir}
	a, err := driver.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening made the directory: %v", err)
	}
	if err := a.(*client).attach(t.Context()); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	b := attachTest(t, link)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory was made as %v, %v", info, err)
	}
	if a.Caps().Store != b.Caps().Store || !strings.HasPrefix(a.Caps().Store, "file:///") {
		t.Errorf("one directory is %q and %q", a.Caps().Store, b.Caps().Store)
	}
	if a.(*client).store != b.store {
		t.Error("two clients of one directory have a store each")
	}
}

func TestCheckDir(t *testing.T) {
	dir := t.TempDir()
	if found := CheckDir(filepath.Join(dir, "not", "there")); found != nil {
		t.Errorf("CheckDir of a fine directory: %q", found)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if found := CheckDir(dir); len(found) != 1 || !strings.Contains(found[0], "everybody") {
		t.Errorf("CheckDir of a directory that all can write: %q", found)
	}
	if found := CheckDir("locks"); len(found) != 1 {
		t.Errorf("CheckDir of a relative directory: %q", found)
	}
}

// left returns the files in the directories of records and clients.
func left(t testing.TB, dir string) []string {
	names, err1 := filepath.Glob(filepath.Join(dir, "names", "*"))
	clients, err2 := filepath.Glob(filepath.Join(dir, "clients", "*"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return append(names, clients...)
}

// TestNothingIsLeft: the last client leaves no record and no file of its own.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	a, b := openTest(t, dir), openTest(t, dir)
	for i := range 20 {
		name := fmt.Sprint("x/", i, strings.Repeat("y", 20*i))
		free(t, a, name, "a new name")
		free(t, b, name, "a name used by another client")
	}
	if n := len(left(t, dir)); n != 20+2 {
		t.Errorf("%d files while two clients are open and 20 names idle", n)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if files := left(t, dir); len(files) != 0 {
		t.Errorf("P9: files are left: %q", files)
	}
	if err := a.Close(); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("closing twice: %v", err)
	}
}

// TestIdleRecordsAreDeleted: a client deletes what it left idle, and not what
// has come into use again.
func TestIdleRecordsAreDeleted(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	for _, name := range []string{"a", "b", "c"} {
		free(t, c, name, "a new name")
	}
	g, err := c.Try(t.Context(), request("b"))
	if err != nil {
		t.Fatal(err)
	}
	c.idle.rotate() // as its timer would
	free(t, c, "c", "it is idle")
	c.idle.rotate()
	for name, want := range map[string]bool{"a": false, "b": true, "c": true} {
		if _, err := os.Stat(filepath.Join(dir, "names", name+".lock")); (err == nil) != want {
			t.Errorf("P9: the record of %s: %v", name, err)
		}
	}
	if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Error(err)
	}
	free(t, c, "a", "its record was deleted")
}

// TestLeftToTheNext: what a client cannot clean when it closes, the next one
// does: names that it still holds, and those closed by a delay.
func TestLeftToTheNext(t *testing.T) {
	dir := t.TempDir()
	a := openTest(t, dir)
	if _, err := a.Try(t.Context(), request("held")); err != nil {
		t.Fatal(err)
	}
	a.Close()
	b := attachTest(t, dir)
	if files := left(t, dir); len(files) != 1 {
		t.Errorf("P9: after a close with a hold and an opening there are %q", files)
	}
	r := request("closed")
	r.MinHold = 50 * time.Millisecond
	g, err := b.Try(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	b.Close()
	time.Sleep(r.MinHold)
	attachTest(t, dir)
	if files := left(t, dir); len(files) != 1 {
		t.Errorf("P9: after a close with a closed name and an opening there are %q", files)
	}
}

// TestTheDeadAreCleanedUp: the next client deletes what a killed one left idle.
func TestTheDeadAreCleanedUp(t *testing.T) {
	dir := t.TempDir()
	p := obeying(t, dir)
	for i := range 5 {
		p.ask("ok", "try x%d 1m 0s", i)
	}
	p.ask("ok", "try y 1m 1m")
	p.kill()
	c := attachTest(t, dir)
	files := left(t, dir)
	if len(files) != 2 || filepath.Base(files[0]) != "y.lock" || filepath.Base(files[1]) != c.id {
		t.Errorf("P9: after a crash and an opening there are %q", files)
	}
	if _, err := c.Try(t.Context(), request("y")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P5: the lock-delay of a killed process was not kept: %v", err)
	}
}

// reboot makes the directory one of another boot.
func reboot(t testing.TB, dir string) {
	t.Helper()
	path := filepath.Join(dir, "boot")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	then, err := parseBoot(string(text))
	if err != nil {
		t.Fatal(err)
	}
	then.id = "another boot"
	if err := os.WriteFile(path, []byte(then.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestReboot: what was held before a reboot is free or closed for its
// lock-delay or minimum hold, times of the other boot mean nothing, and torn records are gone.
func TestReboot(t *testing.T) {
	dir := t.TempDir()
	p := obeying(t, dir)
	token := p.ask("ok", "try plain 1m 0s")
	p.ask("ok", "try delayed 1m 400ms")
	p.ask("ok", "try lasting 1m 0s 400ms")
	p.ask("ok", "try torn 1m 0s")
	if err := os.Truncate(filepath.Join(dir, "names", "torn.lock"), 0); err != nil {
		t.Fatal(err)
	}
	// A hold that the other boot closed for long, at an instant far ahead.
	far := state{name: "far"}
	far.Holds = full().Holds[2:]
	far.Holds[0].Request = request("far")
	far.Holds[0].LockDelay, far.Holds[0].Expires = 400*time.Millisecond, maxInstant
	text := appendState(nil, &far)
	head := appendHeader(nil, textStart, settled, text)
	head = append(append(head, make([]byte, textStart-len(head))...), text...)
	if err := os.WriteFile(filepath.Join(dir, "names", "far.lock"), head, 0o600); err != nil {
		t.Fatal(err)
	}
	reboot(t, dir)

	c := openTest(t, dir)
	if err := c.attach(t.Context()); err == nil || !strings.Contains(err.Error(), "another boot") {
		t.Fatalf("using a directory that a living client uses on another boot: %v", err)
	}
	if _, err := c.Inspect(t.Context(), "plain"); err == nil || !strings.Contains(err.Error(), "another boot") {
		t.Fatalf("looking into a directory that a living client uses on another boot: %v", err)
	}
	p.kill()
	time.Sleep(aliveFor)
	start := time.Now()
	g, err := c.Try(t.Context(), request("plain"))
	if err != nil {
		t.Errorf("P5: the hold of another boot is in the way: %v", err)
	}
	if fmt.Sprint(g.Token) <= token {
		t.Errorf("P3: token %d after %s of another boot", g.Token, token)
	}
	free(t, c, "torn", "its record was torn by the power cut")
	closed := []string{"delayed", "lasting", "far"}
	var arrivals []<-chan time.Time
	for _, name := range closed {
		if _, err := c.Try(t.Context(), request(name)); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("the delay of %s was not kept over the reboot: %v", name, err)
		}
	}
	for _, name := range closed {
		arrivals = append(arrivals, arrival(t, c, request(name)))
	}
	for _, arrived := range arrivals {
		at := <-arrived
		if at.Sub(start) > 400*time.Millisecond+2*poll {
			t.Errorf("P5: a lock-delay of 400ms was over %v after the reboot", at.Sub(start))
		}
	}
}

// TestTokensOutliveRecords: tokens grow when the record of a name was deleted,
// and do not when it was not: the wall clock plays no part.
func TestTokensOutliveRecords(t *testing.T) {
	dir := t.TempDir()
	var last driver.Token
	for range 3 {
		c := openTest(t, dir)
		for range 3 {
			g, err := c.Try(t.Context(), request("x"))
			if err != nil {
				t.Fatal(err)
			}
			if g.Token <= last || g.Token >= 1<<53 {
				t.Errorf("P3: token %d after %d", g.Token, last)
			}
			last = g.Token
			if err := c.Release(t.Context(), []driver.Grant{g})[0]; err != nil {
				t.Fatal(err)
			}
			c.clean("x")
			if _, err := os.Stat(filepath.Join(dir, "names", "x.lock")); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the idle record was not deleted: %v", err)
			}
		}
		c.Close()
	}
}

// TestThiefDied: whoever finds a record that a thief did not finish to move
// finishes it.
func TestThiefDied(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	g, err := c.Try(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "names", "x.lock")
	names := c.store.place.Load().names
	temp, fd, err := names.temporary()
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		pwrite(fd, appendHeader(nil, textStart, moving, nil), 0), os.Link(path, path+oldSuffix), os.Rename(names.at(temp), path))
	closeFD(fd)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Try(t.Context(), request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("P1: Try of a held name whose record is being moved: %v", err)
	}
	// Suppose a thief has moved the record again before the first one's file is deleted: it
	// would be the wrong one. So only those delete it who have the paths locked.
	if _, err := os.Stat(path + oldSuffix); err != nil {
		t.Errorf("P1: what a record was moved from was deleted without the lock of the paths: %v", err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Errorf("P1: a hold was lost when its record was moved: %v", r.Err)
	}
	must(t, c.Release(t.Context(), []driver.Grant{g})[0], c.Close())
	if files := left(t, dir); len(files) != 0 {
		t.Errorf("P9: files are left: %q", files)
	}
}

// TestMoves lets operations and thieves have at one record, slowly and as fast as they can: no
// operation may be lost.
func TestMoves(t *testing.T) {
	t.Run("slow", func(t *testing.T) { moves(t, 50, 3*time.Millisecond, 8*time.Millisecond) })
	t.Run("fast", func(t *testing.T) { moves(t, 200, 100*time.Microsecond, 200*time.Microsecond) })
}

// moves runs operations that take a while, with pauses between one theft and the next.
func moves(t *testing.T, operations int, while, pause time.Duration) {
	dir := t.TempDir()
	c := openTest(t, dir)
	r := request("x")
	r.Mode = driver.Shared
	if _, err := c.Try(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	names := c.store.place.Load().names
	ctx, cancel := context.WithCancel(t.Context())
	moved := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			f, err := openRecord(names, "x.lock", os.O_RDWR, nil)
			if err != nil {
				break
			}
			if stolen, _ := c.store.steal(f); stolen {
				n++
			}
			f.close()
			time.Sleep(pause)
		}
		moved <- n
	}()
	var grants []driver.Grant
	for range operations {
		next := r
		next.Owner = request("").Owner
		var g driver.Grant
		err := c.change(t.Context(), "x", func(op *operation) error {
			time.Sleep(while)
			h, err := op.Ask(next, c.id, false, op.sent, op.now, &op.rules)
			if err == nil {
				g = op.Grant(h)
			}
			return err
		})
		if err != nil {
			t.Error(err)
			break
		}
		grants = append(grants, g)
	}
	cancel()
	n := <-moved
	st, err := names.readRecord(t.Context(), "x.lock", nil, parseAll)
	if err != nil {
		t.Fatal(err)
	}
	for i, g := range grants {
		if st.Held(g.Owner) == nil {
			t.Errorf("P1: hold %d was lost", i)
		}
	}
	if n == 0 {
		t.Error("no record was moved: the test tests nothing")
	}
	t.Logf("the record was moved %d times during %d operations", n, len(grants))
}
