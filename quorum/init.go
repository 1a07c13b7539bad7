package quorum

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// Init says that the nodes of a quorum have just been set up: none of them has voted before, so none has
// forgotten a vote, and all count at once. d is a driver that New, Open or a URL has returned. Said of nodes
// that are in use, it lets two clients have the same lock. So it refuses as soon as any node shows a hold; a node
// that has forgotten its holds shows none, so the rest is the caller's to know. It asks all nodes, and succeeds if
// all of them say yes.
func Init(ctx context.Context, d driver.Driver) error {
	q, ok := d.(*quorum)
	if !ok {
		return fmt.Errorf("%w: the store is no quorum", driver.ErrUnsupported)
	}
	if err := q.alive(ctx); err != nil {
		return err
	}
	if q.rules.MaxTTL == 0 {
		return errors.New("the nodes are said to be durable: all of them count at once")
	}
	none := func(int, struct{}) bool { return false }
	if err := gather(ctx, q, unused, none); err != nil {
		return err
	}
	return gather(ctx, q, func(ctx context.Context, n *node) (struct{}, error) {
		d, err := n.get(ctx)
		if err != nil {
			return struct{}{}, err
		}
		v, ok := vote.VoterOf(d)
		if !ok {
			return struct{}{}, nil
		}
		m, err := n.learn(ctx, v)
		if err == nil {
			err = v.Admit(ctx, m.Life)
		}
		if err == nil {
			_, err = n.learn(ctx, v)
		}
		return struct{}{}, err
	}, none)
}

// unused returns an error if the node shows a hold (P1).
func unused(ctx context.Context, n *node) (none struct{}, err error) {
	d, err := n.get(ctx)
	if err != nil {
		return none, err
	}
	i, ok := driver.As[driver.Operator](d)
	if !ok {
		return none, nil
	}
	for info, err := range i.List(ctx, "") {
		if err != nil {
			return none, err
		}
		if len(info.Holders) > 0 {
			return none, fmt.Errorf("%.40q is held: the nodes are in use, and only new ones may count at once", info.Name)
		}
	}
	return none, nil
}
