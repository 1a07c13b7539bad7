package server

import (
	"testing"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// fronts returns two members of a cell, of which the first does something before its next transaction.
func fronts(t *testing.T) (first, second *asFront, before *hooked) {
	t.Helper()
	m := start(t)
	first = newAsFront(t, m, func(s store) store { before = &hooked{store: s}; return before })
	return first, newAsFront(t, m, nil), before
}

// acquire makes a request at a member.
func (f *asFront) acquire(session, name, request string, edit func(*cellv1.AcquireRequest)) (*cellv1.AcquireResponse, error) {
	m := &cellv1.AcquireRequest{Session: session, Name: name, Request: request}
	if edit != nil {
		edit(m)
	}
	r, err := (locks{f.front}).Acquire(f.ctx, m)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// release withdraws a request.
func (f *asFront) release(session, name, request string) {
	f.t.Helper()
	if _, err := (locks{f.front}).Release(f.ctx, &cellv1.ReleaseRequest{
		Session: session, Locks: []*cellv1.Release{{Name: name, Request: request}},
	}); err != nil {
		f.t.Error(err)
	}
}

// ask keeps a session alive, and returns what its client is told.
func (f *asFront) ask(credential, cursor string) *cellv1.KeepAliveResponse {
	f.t.Helper()
	r, err := sessions{f.front}.KeepAlive(f.ctx, &cellv1.KeepAliveRequest{
		Session: credential, Cursor: cursor, Now: true,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// TestLostCompleteAnswer: a member has missed what has happened, so it tells all that a session has. If that answer is
// lost it tells all again (P2).
func TestLostCompleteAnswer(t *testing.T) {
	f, _, _ := fronts(t)
	credential, _ := f.open()
	ask := func(cursor string) *cellv1.KeepAliveResponse { return f.ask(credential, cursor) }
	known := ask(ask("").Cursor)
	if known.Complete {
		t.Fatal("it tells all although the client knows it")
	}
	if _, err := f.loadMirror(); err != nil {
		t.Fatal(err)
	}
	if !ask(known.Cursor).Complete { // this answer is lost
		t.Fatal("P2: a member that has missed something does not tell all")
	}
	if r := ask(known.Cursor); !r.Complete {
		t.Errorf("P2: the answer that has told all was lost, and the next one says %v", r)
	} else if again := ask(r.Cursor); again.Complete {
		t.Errorf("it tells all although the client knows it: %v", again)
	}
}

// TestEndingOutlivesReload: a home has begun to end a session, and does not know whether that was done. When it has
// read anew what the cell has, it still takes no sign of life for it (P1).
func TestEndingOutlivesReload(t *testing.T) {
	var lost *lostEnd
	home := newAsFront(t, start(t), func(s store) store { lost = &lostEnd{store: s}; return lost })
	credential, id := home.open()
	home.advance(lifetime)
	lost.next.Store(true)
	if err := home.endExpired(home.over(id)[0]); err == nil {
		t.Fatal("the transaction was not lost")
	}
	if _, err := home.loadMirror(); err != nil {
		t.Fatal(err)
	}
	home.keep(credential)
	if resp, err := lost.store.Txn(t.Context(), lost.request.Load()); err != nil || resp.Succeeded {
		t.Errorf("P1: the transaction that was held up ends the session (%v)", err)
	}
	home.expect(id, 1, 1, "P1: it has been kept alive")
}
