package batch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core/batch"
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
func (p plan) done(t *testing.T, text string) {
	t.Helper()
	b, ok := p.out[text]
	if !ok {
		t.Fatalf("no batch %q is under way", text)
	}
	delete(p.out, text)
	p.Done(b)
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
	p.done(t, "A: a")
	p.expectNext(t, 1)
	p.expect(t, 5, "A: b")
}

// TestWaitingIsMoved: a thing that waits for its shard can be set again, or dropped, also when its
// shard has changed.
func TestWaitingIsMoved(t *testing.T) {
	p := newPlan(newThing("a", "A", 0), newThing("b", "A", 0), newThing("c", "A", 0))
	p.Set(p.things["a"], 0)
	p.expect(t, 0, "A: a")
	p.Set(p.things["b"], 1)
	p.Set(p.things["c"], 1)
	p.expect(t, 1, "")
	p.Set(p.things["b"], 9)
	p.things["c"].shard = "C"
	p.Drop(p.things["c"])
	p.Drop(p.things["c"])
	p.expectNext(t, 9)
	p.done(t, "A: a")
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
	due := []driver.Instant{10, 15, 15, 16, 20}
	p := newPlan(things...)
	for i, th := range things {
		p.Set(th, due[i])
	}
	p.expect(t, 9, "") // nothing is due, so nothing goes along
	p.expect(t, 10, "A: a b; B: c")
	p.expectNext(t, 16) // d may not go early, and the things behind it are not considered
	p.done(t, "A: a b")
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

func at(d time.Duration) driver.Instant { return driver.Instant(d) }

// ending returns a thing of shard A that must be done by then.
func ending(name string, end time.Duration) *thing {
	return &thing{name: name, shard: "A", end: at(end)}
}

// TestUrgentApart: urgent things do not cut the time of the others, and neither wait for the
// others' batch. In a batch the most urgent come first.
func TestUrgentApart(t *testing.T) {
	p := newPlan(ending("long", 20*time.Second), ending("longer", time.Minute),
		ending("short", 600*time.Millisecond), ending("shorter", 520*time.Millisecond))
	for _, name := range []string{"longer", "long", "short", "shorter"} {
		p.Set(p.things[name], 0)
	}
	p.expect(t, 0, "A: long longer; A: shorter short")
	if b := p.out["A: long longer"]; b.Within != longest {
		t.Errorf("the batch of 20 s and a minute has %v", b.Within)
	}
	if b := p.out["A: shorter short"]; b.Within != 260*time.Millisecond {
		t.Errorf("the batch of 520 and 600 ms has %v", b.Within)
	}
}

// TestWaitsNoLongerThanItCan: a thing as urgent as the batch under way waits for it, unless that
// may take more than half of the time that is left.
func TestWaitsNoLongerThanItCan(t *testing.T) {
	p := newPlan(ending("a", 1000*time.Millisecond), ending("b", 1020*time.Millisecond),
		ending("c", 1030*time.Millisecond), ending("d", 1200*time.Millisecond))
	p.Set(p.things["a"], 0)
	p.expect(t, 0, "A: a") // has 500 ms
	p.Set(p.things["b"], 0)
	p.expect(t, 0, "")
	later := at(500 * time.Millisecond)
	p.done(t, "A: a")
	p.expect(t, later, "A: b") // has 260 ms, and is in the class below
	if b := p.out["A: b"]; b.Within != 256*time.Millisecond && b.Within != 260*time.Millisecond {
		t.Errorf("b has %v", b.Within)
	}
	p = newPlan(ending("e", 1020*time.Millisecond), ending("f", 520*time.Millisecond))
	p.Set(p.things["e"], 0)
	p.expect(t, 0, "A: e") // until 510 ms
	p.Set(p.things["f"], 0)
	p.expect(t, 0, "A: f") // cannot wait for so long
}

// TestGathers: ten thousand things that were set one after the other share a few
// batches even beside one that is due all the time.
func TestGathers(t *testing.T) {
	const many, period, apart, often = 10_000, 10 * time.Second, time.Millisecond / 2, 30 * time.Millisecond
	p := newPlan()
	for i := range many {
		p.Set(newThing(fmt.Sprint(i), "A", period/8), at(period+time.Duration(i)*apart))
	}
	short := newThing("short", "A", often/8)
	p.Set(short, 0)
	batches, shorts := 0, 0
	for now, ok := p.Next(); ok && now < at(4*period); now, ok = p.Next() {
		short.end = now.Add(100 * time.Millisecond)
		for _, b := range p.send(now) {
			for _, th := range b.Items {
				next := period
				if th == short {
					next = often
				}
				p.Set(th, now.Add(next))
			}
			if b.Items[0] == short {
				shorts++
			} else {
				batches++
			}
			p.Done(b)
		}
	}
	// They are spread over half a period, and an eighth of it goes together.
	if batches > 3*5 || shorts < 1000 {
		t.Errorf("%d batches in three periods, and %d of the short one", batches, shorts)
	}
}
