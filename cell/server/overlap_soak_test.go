//go:build soak

package server

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestWaitEndsElsewhere: a request waits at a member, and is made again at another one, which tells that it has its
// hold. Meanwhile the time of the first call is over: that does not take the hold away (P1).
func TestWaitEndsElsewhere(t *testing.T) {
	first, second, before := fronts(t)
	holder, _ := second.open()
	waiter, id := second.open()
	if _, err := second.acquire(holder, "n", "r", nil); err != nil {
		t.Fatal(err)
	}
	var granted atomic.Pointer[cellv1.AcquireResponse]
	ended := make(chan error, 1)
	go func() {
		_, err := first.acquire(waiter, "n", "r", func(m *cellv1.AcquireRequest) { m.Wait = durationpb.New(500 * time.Millisecond) })
		ended <- err
	}()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, places := second.has(id); places == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the request does not wait")
		}
	}
	before.before(func() {
		second.release(holder, "n", "r")
		r, err := second.acquire(waiter, "n", "r", func(m *cellv1.AcquireRequest) { m.Wait = durationpb.New(time.Minute) })
		if err != nil {
			t.Error(err)
		}
		granted.Store(r)
	})
	t.Logf("the first call: %v", <-ended)
	if granted.Load().GetToken() == 0 {
		t.Fatal("the second call has no hold")
	}
	if err := second.sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	second.mirror.mu.Lock()
	defer second.mirror.mu.Unlock()
	if e := second.mirror.nameLocked("n").find(ownerOf(id, "r")); e == nil || e.Created != granted.Load().Revision {
		t.Errorf("P1: the hold that the second call has told of was taken away")
	}
}

// TestLossDuringRepeatedCall: an operator breaks a hold while the request that has it is repeated, and the answer of
// that call is lost. The parked call tells of the loss (P2).
func TestLossDuringRepeatedCall(t *testing.T) {
	late := &lagging{}
	m := start(t)
	f, second := newAsFront(t, m, func(s store) store { late.store = s; return late }), newAsFront(t, m, nil)
	credential, _ := f.open()
	got, err := f.acquire(credential, "n", "r", nil)
	if err != nil {
		t.Fatal(err)
	}
	first := f.ask(credential, "")
	broken := func() {
		if _, err := (locks{second.front}).Break(f.ctx, &cellv1.BreakRequest{Name: "n", Token: got.Token}); err != nil {
			t.Error(err)
		}
	}
	late.next.Store(&broken)
	if _, err := f.acquire(credential, "n", "r", nil); err == nil { // this answer is lost
		t.Fatal("the hold is not broken")
	}
	r := f.ask(credential, first.Cursor)
	if len(r.Events) != 1 || r.Events[0].GetLost().GetRevision() != got.Revision {
		t.Errorf("P2: the loss is not told: %v", r)
	}
}

// TestFenceChanges: what the sequencer of a call stands for changes after the call was let in. The call writes nothing if
// the sequencer is stale by then. What closes a name after a kill has the key of the hold, but is none.
func TestFenceChanges(t *testing.T) {
	f, second, before := fronts(t)
	r, err := sessions{f.front}.Open(f.ctx, &cellv1.OpenRequest{
		Ttl: durationpb.New(lifetime), LockDelay: durationpb.New(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	session, note := r.Session, "busy"
	for _, c := range []struct {
		what  string
		do    func() error
		stale bool
	}{
		{"noted", func() error {
			_, err := locks{second.front}.SetNote(f.ctx, &cellv1.SetNoteRequest{Session: session, Name: "noted", Request: "r", Note: &note})
			return err
		}, false},
		{"downgraded", func() error {
			_, err := locks{second.front}.Downgrade(f.ctx, &cellv1.DowngradeRequest{Session: session, Name: "downgraded", Request: "r"})
			return err
		}, true},
		{"released", func() error { second.release(session, "released", "r"); return nil }, true},
		{"killed", func() error {
			_, err := sessions{second.front}.Kill(f.ctx, &cellv1.KillRequest{Id: r.Id})
			return err
		}, true},
	} {
		got, err := f.acquire(session, c.what, "r", nil)
		if err != nil {
			t.Fatal(err)
		}
		fence, err := f.checkSequencer(f.ctx, got.Sequencer)
		if err != nil {
			t.Fatal(err)
		}
		before.before(func() {
			if err := c.do(); err != nil {
				t.Error(err)
			}
		})
		_, err = files{f.front}.Put(context.WithValue(f.ctx, sequencerKey{}, fence), &cellv1.PutRequest{Path: "out"})
		if c.stale && reasonOf(err) != cellv1.Reason_REASON_STALE || !c.stale && err != nil {
			t.Errorf("the hold was %s meanwhile: %v", c.what, err)
		}
	}
}
