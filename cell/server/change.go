package server

import (
	"context"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Downgrade makes a shared hold of an exclusive one. The key stays, and so does its place in the order:
// nothing comes between.
func (l locks) Downgrade(ctx context.Context, m *cellv1.DowngradeRequest) (*cellv1.DowngradeResponse, error) {
	e, err := l.change(ctx, m.Session, m.Name, m.Request, func(v *table.Value) error {
		if v.Mode == driver.Slot.String() {
			return refuse(cellv1.Reason_REASON_MISMATCH, "%.80q is a semaphore", m.Name)
		}
		v.Mode = driver.Shared.String()
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.mirror.mu.Lock()
	defer l.mirror.mu.Unlock()
	return &cellv1.DowngradeResponse{Token: int64(e.tokenOf())}, nil
}

// SetNote changes the note of a hold, and puts the token in use on record.
func (l locks) SetNote(ctx context.Context, m *cellv1.SetNoteRequest) (*cellv1.SetNoteResponse, error) {
	if err := checkNote(m.GetNote()); err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	_, err := l.change(ctx, m.Session, m.Name, m.Request, func(v *table.Value) error {
		if m.Note != nil {
			v.Note = *m.Note
		}
		if m.Token != 0 {
			v.HandedOver = max(v.HandedOver, int(driver.Token(m.Token)&driver.Token(layout.Block()-1)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &cellv1.SetNoteResponse{}, nil
}

// change edits the value of a hold's key. It is put only if the key is as it was when it was read: a change that is late
// must not undo another one.
func (f *front) change(ctx context.Context, credential, name, request string, edit func(*table.Value) error) (*entry, error) {
	if err := driver.CheckName(name); err != nil {
		return nil, refuse(cellv1.Reason_REASON_INVALID, "%w", err)
	}
	s, err := f.session(ctx, credential)
	if err != nil {
		return nil, err
	}
	for synced := false; ; {
		e, parsed, why := f.holdOf(s, name, request)
		if e == nil {
			if synced {
				return nil, why
			}
			if err := f.sync(ctx); err != nil {
				return nil, err
			}
			synced = true
			continue
		}
		v := parsed.Value
		if err := edit(&v); err != nil {
			return nil, err
		}
		if v == parsed.Value {
			return e, nil
		}
		resp, err := f.txn(ctx, table.Change(parsed.Key, parsed.Mod, layout.Text(v)))
		if err != nil {
			return nil, ofStore(ctx, err)
		}
		if resp.Succeeded {
			return e, nil
		}
	}
}

// holdOf returns a session's hold, or why there is none.
func (f *front) holdOf(s *session, name, request string) (*entry, table.Entry, error) {
	f.mirror.mu.Lock()
	defer f.mirror.mu.Unlock()
	owner := ownerOf(s.id, request)
	if e := f.mirror.nameLocked(name).find(owner); e != nil && e.holds {
		return e, e.Entry, nil
	}
	if f.mirror.tombstones[tombstoneOf(name, owner)].broken {
		return nil, table.Entry{}, refuse(cellv1.Reason_REASON_BROKEN, "an operator has ended the hold of %.80q", name)
	}
	return nil, table.Entry{}, refuse(cellv1.Reason_REASON_NOT_HELD, "the session does not hold %.80q", name)
}
