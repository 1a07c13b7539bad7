//go:build soak

package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/election"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// office is one election: package election, and what Curator's getParticipants would return.
type office struct {
	fixture
	t        *testing.T
	kind     string
	election *election.Election
	locks    *holdfast.Client
	java     raw
	seen     chan election.Leader // by an observer
}

func newOffice(t *testing.T, x fixture, kind string) *office {
	o := &office{fixture: x, t: t, kind: kind, java: x.raw(t), seen: make(chan election.Leader, 100)}
	o.locks = o.open()
	o.election = election.New(o.locks, "office", nil)
	ctx, cancel := context.WithCancel(context.Background())
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for l, err := range election.New(o.locks, "office", nil).Observe(ctx) {
			if err != nil {
				t.Errorf("observing: %v", err)
			}
			o.seen <- l
		}
	}()
	t.Cleanup(func() { cancel(); <-watching })
	return o
}

// open opens another program's client.
func (o *office) open() *holdfast.Client {
	o.t.Helper()
	c, err := holdfast.Open(o.t.Context(), fmt.Sprintf("zk://%s/%s?hf.leader=%s", o.Addrs(), o.kind, o.kind))
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { c.Close() })
	return c
}

// participants returns the ids of all candidates as Curator reads them: the data of the nodes whose names
// have the stem, in the order of the digits behind it. The first is the leader.
func (o *office) participants() (ids []string) {
	o.t.Helper()
	stem := map[string]string{Latch: "latch-", Selector: "lock-"}[o.kind]
	path := "/" + o.kind + "/office"
	replies, err := o.java.Do(o.t.Context(), zk.Children(path, nil))
	if err != nil {
		o.t.Fatal(err)
	}
	nodes := slices.DeleteFunc(replies[0].Children, func(n string) bool { return !strings.Contains(n, stem) })
	digits := func(n string) int {
		i, err := strconv.Atoi(n[strings.LastIndex(n, stem)+len(stem):])
		if err != nil {
			o.t.Errorf("Curator cannot read %s: %v", n, err)
		}
		return i
	}
	slices.SortFunc(nodes, func(a, b string) int { return cmp.Compare(digits(a), digits(b)) })
	for _, n := range nodes {
		replies, err := o.java.Do(o.t.Context(), zk.GetData(path+"/"+n, nil))
		if err != nil {
			o.t.Fatal(err)
		}
		if replies[0].Err == nil { // it may have left
			ids = append(ids, string(replies[0].Data))
		}
	}
	return ids
}

// leads waits until these are the candidates, the leader first, and asserts that package election says so.
func (o *office) leads(ids ...string) {
	o.t.Helper()
	eventually(o.t, fmt.Sprintf("the candidates are %q", ids), func() bool { return slices.Equal(o.participants(), ids) })
	leader := election.Leader{Vacant: true}
	if len(ids) > 0 {
		leader = election.Leader{Value: ids[0]}
	}
	same := func(l election.Leader) bool { return l.Vacant == leader.Vacant && l.Value == leader.Value }
	if l, err := o.election.Leader(o.t.Context()); err != nil || !same(l) || l.Vacant != (l.Token == 0) {
		o.t.Errorf("Leader is %+v, %v; want %+v", l, err, leader)
	}
	for end := time.After(within); ; {
		select {
		case l := <-o.seen:
			if same(l) {
				return
			}
		case <-end:
			o.t.Fatalf("Observe has not shown %+v within %v", leader, within)
		}
	}
}

// candidate campaigns in a program of its own, and returns where its leadership will come.
func (o *office) candidate(id string) <-chan *election.Leadership {
	e := election.New(o.open(), "office", nil)
	elected := make(chan *election.Leadership, 1)
	go func() {
		l, err := e.Campaign(o.t.Context(), id)
		if err != nil {
			o.t.Errorf("%s: %v", id, err)
		}
		elected <- l
	}()
	return elected
}

func (o *office) elected(from <-chan *election.Leadership) *election.Leadership {
	o.t.Helper()
	select {
	case l := <-from:
		if l == nil {
			o.t.FailNow()
		}
		return l
	case <-time.After(within):
		o.t.Fatalf("nobody is elected within %v", within)
		return nil
	}
}

// TestElection: in both of Curator's elections candidates lead in their order, with growing tokens, and
// their values are the ids that Curator shows.
func TestElection(t *testing.T) {
	t.Parallel()
	x := fixture{start(t)}
	for _, kind := range []string{Latch, Selector} {
		t.Run(kind, func(t *testing.T) { newOffice(t, x, kind).elect() })
	}
}

func (o *office) elect() {
	t := o.t
	o.leads()
	first := o.elected(o.candidate("first"))
	o.leads("first")
	second := o.candidate("второй ②")
	eventually(t, "the second candidate waits", func() bool { return len(o.participants()) == 2 })
	third := o.candidate("third")
	eventually(t, "the third candidate waits", func() bool { return len(o.participants()) == 3 })

	token := first.Token()
	select {
	case <-second:
		t.Fatal("P1: two lead")
	default:
	}
	if err := first.Resign(); err != nil {
		t.Errorf("Resign: %v", err)
	}
	then := o.elected(second)
	o.leads("второй ②", "third")
	if then.Token() <= token {
		t.Errorf("P3: the second leader's token is %v, the first one's %v", then.Token(), token)
	}

	// An operator, or anybody who removes the node, ends a leadership, and its leader learns of it.
	if err := o.locks.Break(t.Context(), "office", then.Token()); err != nil {
		t.Errorf("Break: %v", err)
	}
	select {
	case <-then.Done():
	case <-time.After(within):
		t.Errorf("a leader whose office was taken has not learnt of it within %v", within)
	}
	if err := then.Resign(); !errors.Is(err, holdfast.ErrBroken) {
		t.Errorf("Resign after Break: %v", err)
	}
	last := o.elected(third)
	o.leads("third")
	if err := last.Resign(); err != nil {
		t.Errorf("Resign: %v", err)
	}
	o.leads()
}
