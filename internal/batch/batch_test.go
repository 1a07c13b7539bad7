package batch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/batch"
)

// thing has its own shard, slack and end.
type thing struct {
	name, shard string
	slack       time.Duration
	end         driver.Instant // 0: none
	entry       batch.Entry
}

func newThing(name, shard string, slack time.Duration) *thing {
	return &thing{name: name, shard: shard, slack: slack}
}

const longest = 5 * time.Second

type plan struct {
	*batch.Plan[*thing]
	things map[string]*thing
	out    map[string]batch.Batch[*thing] // by their descriptions by take
}

func newPlan(things ...*thing) plan {
	p := plan{
		batch.New(batch.Rules[*thing]{
			Entry: func(t *thing) *batch.Entry { return &t.entry },
			Slack: func(t *thing) time.Duration { return t.slack },
			Left: func(t *thing, now driver.Instant) time.Duration {
				if t.end == 0 {
					return time.Hour
				}
				return t.end.Sub(now)
			},
			Longest: longest,
		}),
		map[string]*thing{},
		map[string]batch.Batch[*thing]{},
	}
	for _, t := range things {
		p.things[t.name] = t
	}
	return p
}

// send sends what is due, and describes the batches.
func (p plan) send(now driver.Instant) []batch.Batch[*thing] {
	due := p.Due(now)
	return p.Send(now, due, func(i int) string { return due[i].shard })
}

// take sends things, and describes the batches: "A: a b; B: c".
func (p plan) take(now driver.Instant) string {
	var texts []string
	for _, b := range p.send(now) {
		text := b.Shard + ":"
		for _, t := range b.Items {
			text += " " + t.name
		}
		p.out[text] = b
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return strings.Join(texts, "; ")
}

// done tells that the batch with this description has come back.
func (p plan) done(t *testing.T, text string, now driver.Instant, r batch.Result) {
	t.Helper()
	b, ok := p.out[text]
	if !ok {
		t.Fatalf("no batch %q is under way", text)
	}
	delete(p.out, text)
	if !r.RanOut {
		r.Through = len(b.Items)
	}
	p.Done(b, now, r)
}

func (p plan) expect(t *testing.T, now driver.Instant, want string) {
	t.Helper()
	if got := p.take(now); got != want {
		t.Errorf("at %v it took %q, want %q", now, got, want)
	}
}

func (p plan) expectNext(t *testing.T, want driver.Instant) {
	t.Helper()
	if at, ok := p.Next(); !ok || at != want {
		t.Errorf("next is %v %v, want %v", at, ok, want)
	}
}

func TestEmpty(t *testing.T) {
	p := newPlan()
	p.expect(t, 10, "")
	if at, ok := p.Next(); ok || p.Len() != 0 {
		t.Errorf("next is %v, of %d", at, p.Len())
	}
}

func TestOneBatchForEachShard(t *testing.T) {
	p := newPlan(newThing("a", "A", 0), newThing("b", "A", 0), newThing("c", "B", 0), newThing("d", "B", 0))
	for i, name := range []string{"a", "c", "b", "d"} {
		p.Set(p.things[name], driver.Instant(i))
	}
	p.expectNext(t, 0)
	p.expect(t, 2, "A: a b; B: c")
	p.expectNext(t, 3)
	if p.Len() != 1 {
		t.Errorf("%d entries are left", p.Len())
	}
}

// TestBusyShard: a thing that is due waits for its busy shard, is ignored by Next, and goes out
// when the shard is free.
func TestBusyShard(t *testing.T) {
	p := newPlan(newThing("a", "A", 0), newThing("b", "A", 0), newThing("c", "B", 0))
	p.Set(p.things["a"], 0)
	p.Set(p.things["b"], 1)
	p.Set(p.things["c"], 5)
	p.expect(t, 0, "A: a")
	p.expect(t, 1, "")
	p.expectNext(t, 5) // not 1: that would be a busy loop
	p.expect(t, 5, "B: c")
	if p.Len() != 1 {
		t.Errorf("%d entries, want the one that waits", p.Len())
	}
	p.done(t, "A: a", 5, batch.Result{})
	p.expectNext(t, 1)
	p.expect(t, 5, "A: b")
}

// TestWaitingIsMoved: a thing that waits for its shard can be set again, or dropped.
func TestWaitingIsMoved(t *testing.T) {
	p := newPlan(newThing("a", "A", 0), newThing("b", "A", 0), newThing("c", "A", 0))
	p.Set(p.things["a"], 0)
	p.expect(t, 0, "A: a")
	p.Set(p.things["b"], 1)
	p.Set(p.things["c"], 1)
	p.expect(t, 1, "")
	p.Set(p.things["b"], 9)
	p.Drop(p.things["c"])
	p.Drop(p.things["c"])
	p.expectNext(t, 9)
	p.done(t, "A: a", 8, batch.Result{})
	p.expect(t, 8, "")
	p.expect(t, 9, "A: b")
}

// TestSlack: each thing joins a batch as early as its own slack allows, if the batch goes out
// anyway.
func TestSlack(t *testing.T) {
	things := []*thing{
		newThing("a", "A", 10), newThing("b", "A", 5), newThing("c", "B", 5), newThing("d", "A", 0),
		newThing("e", "A", 90),
	}
	at := []driver.Instant{10, 15, 15, 16, 20}
	p := newPlan(things...)
	for i, th := range things {
		p.Set(th, at[i])
	}
	p.expect(t, 9, "") // nothing is due, so nothing goes along
	p.expect(t, 10, "A: a b; B: c")
	p.expectNext(t, 16) // d may not go early, and the things behind it are not considered
	p.done(t, "A: a b", 10, batch.Result{})
	p.expect(t, 15, "")
	p.expect(t, 16, "A: d e")
}

// TestSlackOfBusyShard: a thing that is not due stays in the plan while its shard is busy.
func TestSlackOfBusyShard(t *testing.T) {
	p := newPlan(newThing("a", "A", 9), newThing("b", "A", 9), newThing("c", "B", 9))
	p.Set(p.things["a"], 0)
	p.expect(t, 0, "A: a")
	p.Set(p.things["b"], 12)
	p.Set(p.things["c"], 10)
	p.expect(t, 10, "B: c")
	p.expectNext(t, 12)
}

// TestGathers: ten thousand things that were set one after the other share a few batches in the
// first period, and stay together.
func TestGathers(t *testing.T) {
	const many, period, apart = 10_000, 80_000, 4
	p := newPlan()
	for i := range many {
		p.Set(newThing(fmt.Sprint(i), "A", period/8), driver.Instant(period+apart*i))
	}
	batches, sent := 0, map[*thing]int{}
	for now, ok := p.Next(); ok && now < 4*period; now, ok = p.Next() {
		for _, b := range p.send(now) {
			batches++
			for _, th := range b.Items {
				sent[th]++
				p.Set(th, now+period)
			}
			p.Done(b, now, batch.Result{Through: len(b.Items)})
		}
	}
	// They are spread over half a period, and an eighth of it goes together.
	if batches > 3*5 {
		t.Errorf("%d batches in three periods", batches)
	}
	for th, times := range sent {
		if times != 3 {
			t.Fatalf("%s was sent %d times in three periods", th.name, times)
		}
	}
	if len(sent) != many {
		t.Errorf("%d of %d were sent", len(sent), many)
	}
	if p.Len() != many {
		t.Errorf("%d of %d are planned", p.Len(), many)
	}
}
