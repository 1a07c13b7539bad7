package quorum

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/holdnumber"
)

// operatorTimeout is how long a node has to answer an operator.
const operatorTimeout = 2 * time.Second

// tokenOf returns the token of a hold, as most of its votes have it: nodes that voted late learn it by
// the next renewal. Sure says that a majority of all nodes has it.
func (s *survey) tokenOf(owner string, votes map[int]driver.Holder) (token driver.Token, sure bool) {
	if !s.q.rules.Tokens {
		return holdnumber.Of(owner), true
	}
	count, most := map[driver.Token]int{}, 0
	for _, h := range votes {
		count[h.Token]++
		if n := count[h.Token]; n > most || n == most && h.Token > token {
			token, most = h.Token, n
		}
	}
	return token, most >= s.q.rules.Majority()
}

// survey is what nodes say of one name. A node that has not answered may have any vote.
type survey struct {
	q      *quorum
	name   string
	infos  map[int]driver.Info // by node
	silent int                 // nodes that have not answered, or will not
}

// holders returns the holds that may have a majority, by owner, as each node knows them.
func (s *survey) holders() map[string]map[int]driver.Holder {
	owners := map[string]map[int]driver.Holder{}
	for node, info := range s.infos {
		for _, h := range info.Holders {
			if owners[h.Owner] == nil {
				owners[h.Owner] = map[int]driver.Holder{}
			}
			owners[h.Owner][node] = h
		}
	}
	maps.DeleteFunc(owners, func(_ string, votes map[int]driver.Holder) bool {
		return len(votes)+s.silent < s.q.rules.Majority()
	})
	return owners
}

// clear reports whether further answers can change nothing: a majority has answered, and every hold has
// a majority of the votes, with the same token, or can have none.
func (s *survey) clear() bool {
	if len(s.infos) < s.q.rules.Majority() {
		return false
	}
	for owner, votes := range s.holders() {
		if _, sure := s.tokenOf(owner, votes); !sure || len(votes) < s.q.rules.Majority() {
			return false
		}
	}
	return true
}

// info returns what the nodes say together.
func (s *survey) info() driver.Info {
	info := driver.Info{Name: s.name}
	for owner, votes := range s.holders() {
		info.Holders = append(info.Holders, s.holder(owner, votes))
	}
	slices.SortFunc(info.Holders, func(a, b driver.Holder) int { return int(b.Held - a.Held) })
	if len(info.Holders) == 0 {
		var closed []time.Duration
		for _, i := range s.infos {
			closed = append(closed, i.ClosedFor)
		}
		info.ClosedFor = s.lasting(closed)
	}
	return info
}

// holder returns one hold as the votes for it show it.
func (s *survey) holder(owner string, votes map[int]driver.Holder) driver.Holder {
	all := driver.Holder{Owner: owner}
	all.Token, _ = s.tokenOf(owner, votes)
	var ends []time.Duration
	for _, h := range votes {
		all.Mode, all.Held = h.Mode, max(all.Held, h.Held)
		all.Note = max(all.Note, h.Note) // they differ only while it is changed
		ends = append(ends, h.Expires)
	}
	all.Expires = s.lasting(ends)
	return all
}

// lasting returns for how long something lasts at a majority, of how long it lasts at each node: until
// less than a majority is left.
func (s *survey) lasting(each []time.Duration) time.Duration {
	slices.Sort(each)
	slices.Reverse(each)
	if n := s.q.rules.Majority(); n <= len(each) {
		return each[n-1]
	}
	if len(each) == 0 || s.silent == 0 {
		return 0
	}
	return each[len(each)-1]
}

// inspect asks all nodes, until the answer is clear.
func (q *quorum) inspect(ctx context.Context, name string) (*survey, error) {
	if err := q.alive(ctx); err != nil {
		return nil, err
	}
	s := &survey{q: q, name: name, infos: map[int]driver.Info{}, silent: len(q.nodes)}
	err := gather(ctx, q, func(ctx context.Context, n *node) (driver.Info, error) {
		o, err := n.operator(ctx)
		if err != nil {
			return driver.Info{}, err
		}
		return o.Inspect(ctx, name)
	}, func(node int, info driver.Info) (enough bool) {
		s.infos[node] = info
		s.silent--
		return s.clear()
	})
	if len(s.infos) < q.rules.Majority() {
		return nil, err
	}
	return s, nil
}

// operator returns the node's driver as an operator.
func (n *node) operator(ctx context.Context) (driver.Operator, error) {
	d, err := n.get(ctx)
	if err != nil {
		return nil, err
	}
	o, ok := driver.As[driver.Operator](d)
	if !ok {
		return nil, driver.ErrUnsupported
	}
	return o, nil
}

// gather asks all nodes at the same time, and takes in each answer, one at a time, until there are
// enough or all. It returns what the nodes that failed have said.
func gather[T any](
	ctx context.Context, q *quorum, ask func(context.Context, *node) (T, error), take func(int, T) (enough bool),
) error {
	type answer struct {
		node  int
		value T
		err   error
	}
	answers := make(chan answer, len(q.nodes))
	q.all(operatorTimeout, func(ctx context.Context, n *node) {
		value, err := ask(ctx, n)
		if err != nil {
			err = fmt.Errorf("node %s: %w", n.name, err)
		}
		answers <- answer{n.index, value, err}
	})
	var errs []error
	for range q.nodes {
		select {
		case a := <-answers:
			if a.err != nil {
				errs = append(errs, a.err)
			} else if take(a.node, a.value) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d nodes failed: %w", len(errs), len(q.nodes), errors.Join(errs...))
}

// Inspect implements driver.Operator. It shows the holds that have a majority; if nodes do not answer,
// those that may have one.
func (q *quorum) Inspect(ctx context.Context, name string) (driver.Info, error) {
	s, err := q.inspect(ctx, name)
	if err != nil {
		return driver.Info{}, err
	}
	return s.info(), nil
}

// List implements driver.Operator. It asks all nodes for all their names.
func (q *quorum) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := q.alive(ctx); err != nil {
			yield(driver.Info{}, err)
			return
		}
		names, answered := map[string]*survey{}, 0
		err := gather(ctx, q, func(ctx context.Context, n *node) ([]driver.Info, error) {
			return n.list(ctx, prefix)
		}, func(node int, infos []driver.Info) bool {
			for _, info := range infos {
				s := names[info.Name]
				if s == nil {
					s = &survey{q: q, name: info.Name, infos: map[int]driver.Info{}}
					names[info.Name] = s
				}
				s.infos[node] = info
			}
			answered++
			return false
		})
		if answered < q.rules.Majority() {
			yield(driver.Info{}, err)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			s := names[name]
			s.silent = len(q.nodes) - answered
			if info := s.info(); !info.Idle() && !yield(info, nil) {
				return
			}
		}
	}
}

// list returns the names in use at one node.
func (n *node) list(ctx context.Context, prefix string) ([]driver.Info, error) {
	o, err := n.operator(ctx)
	if err != nil {
		return nil, err
	}
	var infos []driver.Info
	for info, err := range o.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

// Break implements driver.Operator. It succeeds if a majority of the nodes is free of the hold. If it
// fails, the hold may have lost some of its votes; its holder restores them unless they are broken.
func (q *quorum) Break(ctx context.Context, name string, token driver.Token) error {
	s, err := q.inspect(ctx, name)
	if err != nil {
		return err
	}
	for owner, votes := range s.holders() {
		if s.holder(owner, votes).Token == token {
			return q.breakOwner(ctx, name, owner)
		}
	}
	return driver.ErrNotHeld
}

// breakOwner breaks the votes for one owner.
func (q *quorum) breakOwner(ctx context.Context, name, owner string) error {
	free := 0
	err := gather(ctx, q, func(ctx context.Context, n *node) (struct{}, error) {
		return struct{}{}, n.breakOwner(ctx, name, owner)
	}, func(int, struct{}) bool {
		free++
		return false
	})
	if free < q.rules.Majority() {
		return err
	}
	return nil
}

// breakOwner breaks the node's vote for an owner. Nil: the node has none any more.
func (n *node) breakOwner(ctx context.Context, name, owner string) error {
	o, err := n.operator(ctx)
	if err != nil {
		return err
	}
	info, err := o.Inspect(ctx, name)
	if err != nil {
		return err
	}
	for _, h := range info.Holders {
		if h.Owner != owner {
			continue
		}
		if err := o.Break(ctx, name, h.Token); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			return err
		}
	}
	return nil
}
