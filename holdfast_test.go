package holdfast_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/memlock"
)

func newClient(t testing.TB, s *memlock.Store, o *holdfast.ClientOptions) *holdfast.Client {
	t.Helper()
	c, err := holdfast.New(s.Client(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestSmoke(t *testing.T) {
	s := memlock.NewStore(nil)
	a, b := newClient(t, s, nil), newClient(t, s, nil)
	ctx := context.Background()
	l1, err := a.Mutex("x", nil).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Mutex("x", nil).TryAcquire(ctx); !errors.Is(err, holdfast.ErrHeld) {
		t.Fatal(err)
	} else {
		t.Log(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = b.Mutex("x", nil).Acquire(short)
	t.Log(err)
	if !errors.Is(err, holdfast.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	go func() { time.Sleep(20 * time.Millisecond); l1.Release() }()
	l2, err := b.Mutex("x", nil).Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(l2.Token(), l2.Sequencer(), l2.ValidUntil().Sub(time.Now()))
	if err := l2.Release(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkUncontended(b *testing.B) {
	c := newClient(b, memlock.NewStore(nil), nil)
	l := c.Mutex("x", nil)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		le, err := l.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := le.Release(); err != nil {
			b.Fatal(err)
		}
	}
}
