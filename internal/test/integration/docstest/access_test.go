//go:build soak && linux

package docstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// exercise does with a store, as two clients of its URL, everything that locks can do there. So
// the user that the URL names has the rights that are needed.
func exercise(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var clients [2]*holdfast.Client
	for i := range clients {
		c, err := holdfast.Open(ctx, url)
		testserver.Must(t, err)
		defer c.Close()
		clients[i] = c
	}
	one, two := clients[0], clients[1]
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	lease, err := one.Mutex("exercise/mutex", nil).Acquire(ctx)
	testserver.Must(t, err)
	check("renew", lease.Renew(ctx))
	next := make(chan *holdfast.Lease, 1)
	go func() {
		l, err := two.Mutex("exercise/mutex", nil).Acquire(ctx)
		check("wait", err)
		next <- l
	}()
	for {
		info, err := one.Inspect(ctx, "exercise/mutex")
		testserver.Must(t, err)
		if len(info.Waiters) > 0 {
			break
		}
	}
	// A second caller gives up.
	short, giveUp := context.WithTimeout(ctx, 50*time.Millisecond)
	if _, err := two.Mutex("exercise/mutex", nil).Acquire(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("give up: %v", err)
	}
	giveUp()
	check("release", lease.Release())
	handed := <-next
	if handed == nil {
		t.FailNow()
	}
	for info, err := range one.List(ctx, "exercise/") {
		check("list", err)
		if info.Name != "exercise/mutex" {
			t.Errorf("list: %s", info.Name)
		}
	}
	check("break", one.Break(ctx, "exercise/mutex", handed.Token()))
	select {
	case <-handed.Done():
	case <-ctx.Done():
		t.Error("break: the holder was not told")
	}

	rw := one.RWMutex("exercise/rw", nil)
	writer, err := rw.Write.Acquire(ctx)
	check("write", err)
	if err == nil {
		check("downgrade", writer.Downgrade(ctx))
		reader, err := two.RWMutex("exercise/rw", nil).Read.TryAcquire(ctx)
		check("read", err)
		if err == nil {
			check("release", errors.Join(reader.Release(), writer.Release()))
		}
	}
	slot, err := one.Semaphore("exercise/slots", 3, &holdfast.Options{Permits: 2, MinHold: 10 * time.Millisecond}).Acquire(ctx)
	if errors.Is(err, driver.ErrUnsupported) { // the store keeps no minimum hold
		slot, err = one.Semaphore("exercise/slots", 3, &holdfast.Options{Permits: 2}).Acquire(ctx)
	}
	check("semaphore", err)
	if err == nil {
		check("release", slot.Release())
	}
	for _, err := range two.Watch(ctx, "exercise/mutex") {
		check("watch", err)
		break
	}
}
