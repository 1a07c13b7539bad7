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

// survey is what nodes say of one name. A node that has not answered may have any vote.
type survey struct {
	q      *quorum
	name   string
	infos  []driver.Info // of the nodes that have answered
	silent int           // nodes that have not answered, or will not
}

// found is a hold that may have a majority.
type found struct {
	driver.Holder
	sure bool // it has a majority, and so has its token
}

// holders returns the holds that may have a majority.
func (s *survey) holders() (holds []found) {
	votes := map[string][]driver.Holder{}
	for _, info := range s.infos {
		for _, h := range info.Holders {
			votes[h.Owner] = append(votes[h.Owner], h)
		}
	}
	needed := s.q.rules.Majority()
	for owner, votes := range votes {
		if len(votes)+s.silent < needed {
			continue
		}
		f := found{Holder: driver.Holder{Owner: owner, Mode: votes[0].Mode}}
		var ends []time.Duration
		count, most := map[driver.Token]int{}, 0
		for _, h := range votes {
			f.Held, f.Note = max(f.Held, h.Held), max(f.Note, h.Note)
			ends = append(ends, h.Expires)
			// Most of the votes have the hold's token. Nodes that voted late learn it by the next renewal.
			count[h.Token]++
			if n := count[h.Token]; n > most || n == most && h.Token > f.Token {
				f.Token, most = h.Token, n
			}
		}
		if !s.q.rules.Tokens {
			f.Token, most = holdnumber.Of(owner), len(votes)
		}
		f.Expires, f.sure = s.lasting(ends), most >= needed
		holds = append(holds, f)
	}
	return holds
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

// info returns what the nodes say together.
func (s *survey) info() driver.Info {
	info := driver.Info{Name: s.name}
	for _, f := range s.holders() {
		info.Holders = append(info.Holders, f.Holder)
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

// inspect asks all nodes, until further answers can change nothing: a majority has answered, and every hold has
// a majority of the votes, with the same token, or can have none.
func (q *quorum) inspect(ctx context.Context, name string) (*survey, error) {
	s := &survey{q: q, name: name, silent: len(q.nodes)}
	err := gather(ctx, q, func(ctx context.Context, _ *node, d driver.Forward) (driver.Info, error) {
		return d.Inspect(ctx, name)
	}, func(info driver.Info) (enough bool) {
		s.infos = append(s.infos, info)
		s.silent--
		return len(s.infos) >= q.rules.Majority() && !slices.ContainsFunc(s.holders(), func(f found) bool { return !f.sure })
	})
	if len(s.infos) < q.rules.Majority() {
		return nil, err
	}
	return s, nil
}

// gather asks all nodes at the same time, and takes in each answer, one at a time, until there are
// enough or all. It returns what the nodes that failed have said.
func gather[T any](
	ctx context.Context, q *quorum, ask func(context.Context, *node, driver.Forward) (T, error), take func(T) (enough bool),
) error {
	if err := q.alive(ctx); err != nil {
		return err
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, len(q.nodes))
	q.all(operatorTimeout, func(ctx context.Context, n *node) {
		var a answer
		d, err := n.get(ctx)
		if err == nil {
			if a.value, err = ask(ctx, n, driver.Forward{Driver: d}); err != nil {
				err = fmt.Errorf("node %s: %w", n.name, err)
			}
		}
		a.err = err
		answers <- a
	})
	var errs []error
	for range q.nodes {
		select {
		case a := <-answers:
			if a.err != nil {
				errs = append(errs, a.err)
			} else if take(a.value) {
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

// Inspect implements driver.Inspector. It shows the holds that have a majority; if nodes do not answer,
// those that may have one.
func (q *quorum) Inspect(ctx context.Context, name string) (driver.Info, error) {
	s, err := q.inspect(ctx, name)
	if err != nil {
		return driver.Info{}, err
	}
	return s.info(), nil
}

// List implements driver.Inspector. It asks all nodes for all their names.
func (q *quorum) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		names, answered := map[string][]driver.Info{}, 0
		err := gather(ctx, q, func(ctx context.Context, _ *node, d driver.Forward) (infos []driver.Info, err error) {
			for info, err := range d.List(ctx, prefix) {
				if err != nil {
					return nil, err
				}
				infos = append(infos, info)
			}
			return infos, nil
		}, func(infos []driver.Info) bool {
			for _, info := range infos {
				names[info.Name] = append(names[info.Name], info)
			}
			answered++
			return false
		})
		if answered < q.rules.Majority() {
			yield(driver.Info{}, err)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			s := survey{q: q, name: name, infos: names[name], silent: len(q.nodes) - answered}
			if info := s.info(); !info.Idle() && !yield(info, nil) {
				return
			}
		}
	}
}

// Break implements driver.Breaker. It succeeds if a majority of the nodes is free of the hold. If it
// fails, the hold may have lost some of its votes; its holder restores them unless they are broken.
func (q *quorum) Break(ctx context.Context, name string, token driver.Token) error {
	s, err := q.inspect(ctx, name)
	if err != nil {
		return err
	}
	holds := s.holders()
	i := slices.IndexFunc(holds, func(f found) bool { return f.Token == token })
	if i < 0 {
		return driver.ErrNotHeld
	}
	free := 0
	err = gather(ctx, q, func(ctx context.Context, _ *node, d driver.Forward) (_ struct{}, err error) {
		info, err := d.Inspect(ctx, name)
		for _, h := range info.Holders { // each node may have a token of its own for the hold
			if h.Owner == holds[i].Owner && err == nil {
				err = d.Break(ctx, name, h.Token)
			}
		}
		if errors.Is(err, driver.ErrNotHeld) {
			err = nil
		}
		return struct{}{}, err
	}, func(struct{}) bool {
		free++
		return false
	})
	if free < q.rules.Majority() {
		return err
	}
	return nil
}

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
	if q.rules.MaxTTL == 0 {
		return errors.New("the nodes are said to be durable: all of them count at once")
	}
	none := func(struct{}) bool { return false }
	if err := gather(ctx, q, unused, none); err != nil {
		return err
	}
	return gather(ctx, q, func(ctx context.Context, n *node, _ driver.Forward) (_ struct{}, err error) {
		m, err := n.learn(ctx)
		if err == nil {
			err = n.lives.Admit(ctx, m.Life)
		}
		if err == nil {
			_, err = n.learn(ctx)
		}
		return struct{}{}, err
	}, none)
}

// unused returns an error if the node shows a hold (P1).
func unused(ctx context.Context, _ *node, d driver.Forward) (_ struct{}, err error) {
	for info, err := range d.List(ctx, "") {
		if err == nil && len(info.Holders) > 0 {
			err = fmt.Errorf("%.40q is held: the nodes are in use, and only new ones may count at once", info.Name)
		}
		if err != nil && !errors.Is(err, driver.ErrUnsupported) {
			return struct{}{}, err
		}
	}
	return struct{}{}, nil
}
