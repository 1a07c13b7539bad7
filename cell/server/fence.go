package server

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// fence is the hold that a call depends on, because it carries its sequencer. The hold is compared in every
// transaction of the call, so nothing is written after the hold has ended.
type fence struct {
	key       string
	changed   int64 // the revision of the key's last change
	sequencer driver.Sequencer
}

// fenceKey is where the context of a call has its fence.
type fenceKey struct{}

func fenceOf(ctx context.Context) (fence, bool) {
	f, ok := ctx.Value(fenceKey{}).(fence)
	return f, ok
}

// errStale refuses a sequencer.
func errStale(s driver.Sequencer) error {
	return refuse(cellv1.Reason_REASON_STALE, "the sequencer %.80q is of a hold that has ended", s.String())
}

// fence returns the hold that a sequencer is of, as far as the mirror knows, and an error unless that stands. A hold that
// was handed over inside its client has any of the tokens of its block. No earlier holder of it has a sequencer: a client
// hands over no hold whose sequencer was asked for (P1).
func (m *mirror) fence(s driver.Sequencer) (fence, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nameLocked(s.Name); n != nil {
		for _, e := range n.entries[:n.holders] {
			if !e.Value.Closed && e.Mode == s.Mode && e.Created == layout.Created(s.Token) && s.Token >= e.tokenOf() {
				return fence{e.Key, e.Mod, s}, nil
			}
		}
	}
	return fence{}, errStale(s)
}

// fenced does a transaction if a hold stands. A key that has changed may be a hold of another mode by now, or what
// closes the name after a kill: so it is looked at again.
func (f *front) fenced(ctx context.Context, needs fence, req *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	for {
		resp, err := f.store.Txn(ctx, &etcdserverpb.TxnRequest{
			Compare: []*etcdserverpb.Compare{compareChanged([]byte(needs.key), needs.changed)},
			Success: []*etcdserverpb.RequestOp{table.TxnOp(req)},
		})
		if err != nil {
			return nil, err
		}
		if resp.Succeeded {
			done := resp.Responses[0].GetResponseTxn()
			done.Header = resp.Header
			return done, nil
		}
		if err := f.mirror.reach(ctx, resp.Header.Revision); err != nil {
			return nil, err
		}
		if needs, err = f.mirror.fence(needs.sequencer); err != nil {
			return nil, err
		}
	}
}
