package quorum

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/holdnumber"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// ask asks all nodes at the same time, each for at most 2 s. It returns the answers of those that have answered, and
// an error that says what the others failed with.
func ask[T any](ctx context.Context, q *quorum, f func(context.Context, *node, wrap.Forward) (T, error)) (answers []T, err error) {
	if err := q.enter(ctx); err != nil {
		return nil, err
	}
	defer q.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	defer context.AfterFunc(q.life, cancel)()
	values, errs := make([]T, len(q.nodes)), make([]error, len(q.nodes))
	var all sync.WaitGroup
	for i, n := range q.nodes {
		all.Go(func() {
			d, err := n.get(ctx)
			if err == nil {
				values[i], err = f(ctx, n, wrap.Forward{Driver: d})
			}
			errs[i] = n.says(err)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err == nil {
			answers = append(answers, values[i])
		}
	}
	if failed := len(q.nodes) - len(answers); failed > 0 {
		err = fmt.Errorf("%d of %d nodes failed: %w", failed, len(q.nodes), errors.Join(errs...))
	}
	return answers, err
}

// info returns what nodes say together of a name: the holds that may have a majority. Answered is how many nodes have
// answered. The others may have any vote.
func (q *quorum) info(name string, infos []driver.Info, answered int) driver.Info {
	all, closed := driver.Info{Name: name}, []time.Duration(nil)
	votes := map[string][]driver.Holder{}
	for _, info := range infos {
		closed = append(closed, info.ClosedFor)
		for _, h := range info.Holders {
			votes[h.Owner] = append(votes[h.Owner], h)
		}
	}
	for owner, votes := range votes {
		if len(votes)+len(q.nodes)-answered < q.rules.Majority() {
			continue
		}
		hold, ends := votes[0], []time.Duration(nil)
		count := map[driver.Token]int{}
		for _, h := range votes {
			ends = append(ends, h.Expires)
			// Most of the votes have the hold's token. Nodes that voted late learn it by the next renewal.
			if count[h.Token]++; count[h.Token] > count[hold.Token] {
				hold.Token = h.Token
			}
		}
		if !q.rules.Tokens {
			hold.Token = holdnumber.Of(owner)
		}
		hold.Expires = q.lasting(ends)
		all.Holders = append(all.Holders, hold)
	}
	slices.SortFunc(all.Holders, func(a, b driver.Holder) int { return int(b.Held - a.Held) })
	if len(all.Holders) == 0 {
		all.ClosedFor = q.lasting(closed)
	}
	return all
}

// lasting returns for how long something lasts at a majority, of how long it lasts at each node. 0: nobody knows.
func (q *quorum) lasting(each []time.Duration) time.Duration {
	slices.Sort(each)
	if n := len(each) - q.rules.Majority(); n >= 0 {
		return each[n]
	}
	return 0
}

// Inspect implements driver.Operator. It shows the holds that have a majority; if nodes do not answer,
// those that may have one.
func (q *quorum) Inspect(ctx context.Context, name string) (driver.Info, error) {
	infos, err := ask(ctx, q, func(ctx context.Context, _ *node, o wrap.Forward) (driver.Info, error) {
		return o.Inspect(ctx, name)
	})
	if len(infos) < q.rules.Majority() {
		return driver.Info{}, err
	}
	return q.info(name, infos, len(infos)), nil
}

// List implements driver.Operator. It asks all nodes for all their names.
func (q *quorum) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		lists, err := ask(ctx, q, func(ctx context.Context, _ *node, o wrap.Forward) (list []driver.Info, err error) {
			for info, err := range o.List(ctx, prefix) {
				if err != nil {
					return nil, err
				}
				list = append(list, info)
			}
			return list, nil
		})
		if len(lists) < q.rules.Majority() {
			yield(driver.Info{}, err)
			return
		}
		names := map[string][]driver.Info{}
		for _, info := range slices.Concat(lists...) {
			names[info.Name] = append(names[info.Name], info)
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if info := q.info(name, names[name], len(lists)); !info.Idle() && !yield(info, nil) {
				return
			}
		}
	}
}

// Break implements driver.Operator. It succeeds if a majority of the nodes is free of the hold. If it
// fails, the hold may have lost some of its votes; its holder restores them unless they are broken.
func (q *quorum) Break(ctx context.Context, name string, token driver.Token) error {
	info, err := q.Inspect(ctx, name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(info.Holders, func(h driver.Holder) bool { return h.Token == token })
	if i < 0 {
		return driver.ErrNotHeld
	}
	free, err := ask(ctx, q, func(ctx context.Context, _ *node, o wrap.Forward) (any, error) {
		at, err := o.Inspect(ctx, name)
		for _, h := range at.Holders { // each node may have a token of its own for the hold
			if h.Owner == info.Holders[i].Owner && err == nil {
				err = o.Break(ctx, name, h.Token)
			}
		}
		if errors.Is(err, driver.ErrNotHeld) {
			err = nil
		}
		return nil, err
	})
	if len(free) >= q.rules.Majority() {
		return nil
	}
	return err
}
