//go:build soak

package redisson

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
)

func TestLatchOpens(t *testing.T) {
	w := newWorld(t)
	l, other := w.latch(), w.latch()
	for _, open := range []func() error{
		func() error { _, err := l.CountDown(t.Context()); return err },
		func() error { _, err := l.Delete(t.Context()); return err },
	} {
		if _, err := l.Create(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		given := w.begin(func() error { return other.Await(ctx) })
		waits := []func() error{}
		for range 5 {
			waits = append(waits, w.begin(func() error { return other.Await(t.Context()) }))
		}
		w.subscribed(l.channel)
		cancel()
		if err := given(); !errors.Is(err, context.Canceled) {
			t.Errorf("Await whose context ended returned %v", err)
		}
		if err := open(); err != nil {
			t.Fatal(err)
		}
		for _, end := range waits {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLatchPolls: the key is deleted, and nobody is told.
func TestLatchPolls(t *testing.T) {
	w := newWorld(t)
	l := w.latch()
	if _, err := l.Create(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	opened := w.begin(func() error { return l.Await(t.Context()) })
	w.subscribed(l.channel)
	w.do("DEL", "n")
	if err := opened(); err != nil {
		t.Error(err)
	}
}

// TestLatchAfterLostConnection: what was published while a waiter was not connected is not missed.
func TestLatchAfterLostConnection(t *testing.T) {
	w := newWorld(t)
	proxy := chaos.StartProxy(t, w.server.Addr)
	l := w.latch()
	other, err := w.client(connect(t, proxy.Addr)).Latch("n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Create(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	opened := w.begin(func() error { return other.Await(t.Context()) })
	w.subscribed(l.channel)
	proxy.Cut()
	if _, err := l.CountDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	if err := opened(); err != nil && !errors.Is(err, ErrUncertain) {
		t.Error(err)
	}
}
