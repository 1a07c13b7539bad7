//go:build soak

// Package faulttest spoils real cells, and the processes that use them, and checks that celllock promises
// no more than holds.
package faulttest

import (
	"context"
	"errors"
	neturl "net/url"
	"os"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/celllock"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(crowdEnv); text != "" {
		obey(text)
		return
	}
	faults.Main(m)
}

func url(addrs string) string { return "cell://" + addrs }

// quick is an election time with which the shortest TTL is 1 s.
const quick = 500 * time.Millisecond

func TestFaults(t *testing.T) {
	faults.Run(t, faults.Harness{
		Start: func(t testing.TB) (faults.Server, string) {
			c := testserver.StartCell(t, testserver.CellOptions{Election: quick})
			return c.Members[0], c.Addrs()
		},
		URL: url,
		// Each hold is two writes that a cell agrees on.
		Goroutines: 3,
	})
}

// within is a context for one thing that must not take long.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func client(t testing.TB, addrs string) *holdfast.Client {
	t.Helper()
	c, err := holdfast.Open(within(t), url(addrs))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) // its cell may be gone
	return c
}

func acquire(t testing.TB, c *holdfast.Client, name string, o *holdfast.Options) *holdfast.Lease {
	t.Helper()
	lease, err := c.Mutex(name, o).Acquire(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func isHeld(err error) bool { return errors.Is(err, holdfast.ErrHeld) }

// cellClient returns a client of the cell itself.
func cellClient(t testing.TB, addrs string) *cell.Client {
	t.Helper()
	c, err := openCell(addrs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// openCell returns a client of the cell itself, which the caller closes.
func openCell(addrs string) (*cell.Client, error) {
	u, err := neturl.Parse(url(addrs))
	if err != nil {
		return nil, err
	}
	c, _, err := celllock.Cell(u)
	return c, err
}

// killSession kills the session that has a lock-delay, as an operator does.
func killSession(t testing.TB, addrs string, lockDelay time.Duration) {
	t.Helper()
	c := cellClient(t, addrs)
	err := c.Do(within(t), true, func(ctx context.Context, m *cell.Member) error {
		all, err := m.Sessions.List(ctx, &cellv1.SessionsListRequest{})
		if err != nil {
			return err
		}
		for _, s := range all.Sessions {
			if s.LockDelay.AsDuration() == lockDelay {
				_, err := m.Sessions.Kill(ctx, &cellv1.KillRequest{Id: s.Id})
				return err
			}
		}
		return errors.New("there is no such session")
	})
	if err != nil {
		t.Fatal(err)
	}
}
