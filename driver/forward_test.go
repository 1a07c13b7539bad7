package driver

import (
	"context"
	"errors"
	"iter"
	"testing"
)

// bare is a driver without optional interfaces.
type bare struct{ caps Caps }

func (b *bare) Caps() Caps                                { return b.caps }
func (*bare) Try(context.Context, Request) (Grant, error) { return Grant{Token: 1}, nil }
func (*bare) Renew(_ context.Context, g []Grant) []Renewal {
	return make([]Renewal, len(g))
}
func (*bare) Release(_ context.Context, g []Grant) []error { return make([]error, len(g)) }
func (*bare) Close() error                                 { return ErrClosed }

// full has every optional interface. Each answer is different.
type full struct {
	bare
	losses chan Loss
}

func (*full) Enqueue(context.Context, Request) (Grant, error)   { return Grant{Token: 2}, nil }
func (*full) Wait(context.Context, Request) (Grant, error)      { return Grant{Token: 3}, nil }
func (f *full) Losses() <-chan Loss                             { return f.losses }
func (*full) Shard(r Request) string                            { return "shard of " + r.Name }
func (*full) Inspect(_ context.Context, n string) (Info, error) { return Info{Name: n}, nil }
func (*full) List(_ context.Context, p string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) { yield(Info{Name: p + "1"}, nil) }
}
func (*full) Break(context.Context, string, Token) error      { return nil }
func (*full) Downgrade(context.Context, Grant) (Grant, error) { return Grant{Token: 4}, nil }
func newFull(ops Ops) *full                                   { return &full{bare{Caps{Ops: ops}}, make(chan Loss)} }

const allOps = OpQueue | OpNotify | OpShard | OpInspect | OpBreak | OpDowngrade

// answers calls every optional operation and returns the answers by operation.
func answers(f Forward) map[Ops]error {
	ctx := context.Background()
	said := map[Ops]error{}
	_, enqueue := f.Enqueue(ctx, Request{})
	_, wait := f.Wait(ctx, Request{})
	if said[OpQueue] = enqueue; (enqueue == nil) != (wait == nil) {
		said[OpQueue] = errors.New("Enqueue and Wait differ")
	}
	if f.Losses() == nil {
		said[OpNotify] = ErrUnsupported
	}
	if f.Shard(Request{Name: "x"}) != "shard of x" {
		said[OpShard] = ErrUnsupported
	}
	_, inspect := f.Inspect(ctx, "x")
	listed := 0
	for _, list := range f.List(ctx, "x") {
		listed++
		if said[OpInspect] = inspect; (inspect == nil) != (list == nil) {
			said[OpInspect] = errors.New("Inspect and List differ")
		}
	}
	if listed != 1 {
		said[OpInspect] = errors.New("List does not yield its one answer")
	}
	said[OpBreak] = f.Break(ctx, "x", 1)
	_, said[OpDowngrade] = f.Downgrade(ctx, Grant{})
	return said
}

// TestForward: a wrapper does what its driver announces and has methods for, and refuses
// everything else. So does a wrapper around a wrapper.
func TestForward(t *testing.T) {
	for _, c := range []struct {
		name string
		d    Driver
		want Ops
	}{
		{"nothing", &bare{}, 0},
		{"announced without methods", &bare{Caps{Ops: allOps}}, 0},
		{"methods that are not announced", newFull(0), 0},
		{"everything", newFull(allOps), allOps},
		{"a queue only", newFull(OpQueue), OpQueue},
		{"notifications only", newFull(OpNotify), OpNotify},
		{"shards only", newFull(OpShard), OpShard},
		{"inspection only", newFull(OpInspect), OpInspect},
		{"breaking only", newFull(OpBreak), OpBreak},
		{"downgrading only", newFull(OpDowngrade), OpDowngrade},
	} {
		for _, f := range []Forward{{c.d}, {Forward{c.d}}} {
			said := answers(f)
			for op := OpQueue; op <= OpDowngrade; op <<= 1 {
				err := said[op]
				if c.want.Has(op) && err != nil {
					t.Errorf("%s: %v gives %v", c.name, op, err)
				}
				if !c.want.Has(op) && !errors.Is(err, ErrUnsupported) {
					t.Errorf("%s: %v gives %v, not ErrUnsupported", c.name, op, err)
				}
			}
		}
	}
}

// told is a driver that may tell when a name is free.
type told struct{ bare }

func (*told) Wakes(name string) Wakes { return wakesOf(name) }

type wakesOf string

func (wakesOf) C() <-chan struct{} { return nil }
func (wakesOf) Sure() bool         { return true }
func (wakesOf) Stop()              {}

func TestForwardWakes(t *testing.T) {
	if w := (Forward{Forward{&told{}}}).Wakes("x"); w != wakesOf("x") {
		t.Errorf("a wrapper listens by %v", w)
	}
	if w := (Forward{&bare{}}).Wakes("x"); w != nil {
		t.Errorf("a wrapper of a driver that tells nothing listens by %v", w)
	}
}

func TestForwardOfTheCore(t *testing.T) {
	f := Forward{&bare{Caps{Store: "x"}}}
	g, err := f.Try(context.Background(), Request{})
	if f.Caps().Store != "x" || g.Token != 1 || err != nil || !errors.Is(f.Close(), ErrClosed) {
		t.Error("a wrapper changes the driver's answers")
	}
}

func TestAs(t *testing.T) {
	if _, ok := As[Queuer](newFull(OpQueue), OpQueue); !ok {
		t.Error("a queue that is announced and there is not found")
	}
	if q, ok := As[Queuer](newFull(OpInspect), OpQueue); ok || q != nil {
		t.Error("a queue that is not announced is found")
	}
	if q, ok := As[Queuer](&bare{Caps{Ops: OpQueue}}, OpQueue); ok || q != nil {
		t.Error("a queue that has no methods is found")
	}
}
