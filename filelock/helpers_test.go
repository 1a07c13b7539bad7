//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// must ends the test at an error.
var must = testserver.Must

// The tests need real processes: the test's own program, started again to play one of these parts. Its argument is
// the directory.
var parts = map[string]func(args []string) error{"obey": part(obey)}

func part(play func(dir string) error) func([]string) error {
	return func(args []string) error { return play(args[0]) }
}

func TestMain(m *testing.M) {
	testserver.Play(parts)
	os.Exit(m.Run())
}

// openTest opens a client of dir that is closed with the test.
func openTest(t testing.TB, dir string) *client {
	t.Helper()
	d, err := Open(context.Background(), Options{Dir: dir})
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d.(*client)
}

// attachTest is openTest, and makes the client ready for use.
func attachTest(t testing.TB, dir string) *client {
	t.Helper()
	c := openTest(t, dir)
	must(t, c.attach(t.Context()))
	c.cleaning.Wait()
	return c
}

// openFD opens any file.
func openFD(path string, flags int, perm uint32) (int, error) {
	for {
		fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, perm)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

// recordFile opens the record file of a name.
func recordFile(t testing.TB, c *client, name string) *file {
	t.Helper()
	f, err := openRecord(c.store.place.Load().names, fileName(name), os.O_RDWR)
	must(t, err)
	return f
}

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: rand.Text(), TTL: time.Minute, Note: "a test, its host, 42"}
}

func renew(c *client, g driver.Grant) error {
	return c.Renew(context.Background(), []driver.Grant{g})[0].Err
}

// free fails the test unless the name is free now.
func free(t testing.TB, d driver.Driver, name, why string) {
	t.Helper()
	g, err := d.Try(context.Background(), request(name))
	if err != nil {
		t.Fatalf("%s: Try: %v", why, err)
	}
	if err := d.Release(context.Background(), []driver.Grant{g})[0]; err != nil {
		t.Fatalf("%s: Release: %v", why, err)
	}
}

// granted takes a place in the queue, and returns a channel on which comes why the hold was not granted, or nil. The
// waiter asks again when it is told to, and else never: if nobody tells it, nothing comes.
func granted(t testing.TB, c *client, r driver.Request) <-chan error {
	t.Helper()
	if _, err := c.Enqueue(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Enqueue: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		for {
			_, err := c.Wait(t.Context(), r)
			if errors.Is(err, driver.ErrHeld) {
				_, err = c.Enqueue(t.Context(), r)
			}
			if !errors.Is(err, driver.ErrHeld) {
				done <- err
				return
			}
		}
	}()
	return done
}

// waitFor waits for a hold as package holdfast does.
func waitFor(ctx context.Context, c *client, r driver.Request) (driver.Grant, error) {
	for {
		poll, cancel := context.WithTimeout(ctx, poll*3/4)
		g, err := c.Wait(poll, r)
		cancel()
		if err != nil && ctx.Err() == nil {
			g, err = c.Enqueue(ctx, r)
		}
		if err == nil || !errors.Is(err, driver.ErrHeld) {
			return g, err
		}
	}
}

// obeying starts a child that obeys commands.
func obeying(t testing.TB, dir string) *testserver.Child {
	t.Helper()
	c := testserver.StartChild(t, "obey", dir)
	c.Expect("ready")
	return c
}

// obey is a child that does what it is told, one command at a time:
//
//	try NAME TTL LOCKDELAY [MINHOLD] | queue NAME | wait | renew | release | withdraw
//	block NAME: try, with a block of tokens
//	operate NAME: try, but stand still inside of the operation until the next line
//	spawn: start a process that outlives this one
func obey(dir string) error {
	ctx := context.Background()
	d, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	c := d.(*client)
	if err := c.attach(ctx); err != nil {
		return err
	}
	c.cleaning.Wait()
	fmt.Println("ready")
	var r driver.Request
	var g driver.Grant
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		var err error
		switch words[0] {
		case "try":
			r = request(words[1])
			r.TTL, _ = time.ParseDuration(words[2])
			r.LockDelay, _ = time.ParseDuration(words[3])
			if len(words) > 4 {
				r.MinHold, _ = time.ParseDuration(words[4])
			}
			g, err = c.Try(ctx, r)
		case "block":
			r = request(words[1])
			r.Tokens = tokenBlock
			g, err = c.Try(ctx, r)
		case "queue":
			r = request(words[1])
			g, err = c.Enqueue(ctx, r)
		case "withdraw":
			err = c.Release(ctx, []driver.Grant{{Request: r}})[0]
		case "wait":
			g, err = waitFor(ctx, c, r)
		case "renew":
			err = c.Renew(ctx, []driver.Grant{g})[0].Err
		case "release":
			err = c.Release(ctx, []driver.Grant{g})[0]
		case "operate":
			runs := 0
			r = request(words[1])
			err = c.change(ctx, r.Name, func(t *operation) error {
				if runs++; runs == 1 {
					fmt.Println("inside")
					lines.Scan()
				}
				h, err := t.Ask(r, c.id, false, t.sent, t.now, &t.rules)
				if err == nil {
					g = t.Grant(h)
				}
				return err
			})
		case "spawn":
			cmd := exec.Command("sleep", "60")
			if err = cmd.Start(); err == nil {
				fmt.Println("pid", cmd.Process.Pid)
				continue
			}
		}
		switch {
		case err == nil:
			fmt.Println("ok", g.Token)
		case errors.Is(err, driver.ErrHeld):
			fmt.Println("held")
		case driver.Gone(err):
			fmt.Println("gone")
		default:
			return err
		}
	}
	return c.Close()
}
