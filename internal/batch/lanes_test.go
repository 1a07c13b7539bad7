package batch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/batch"
)

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
	p.done(t, "A: a", later, batch.Result{})
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

// TestLimit: a lane whose batch has run out of time gets fewer things at a time, and more again
// when they are done in time.
func TestLimit(t *testing.T) {
	p := newPlan()
	things := make([]*thing, 100)
	for i := range things {
		things[i] = newThing(fmt.Sprint(i), "A", 0)
		p.Set(things[i], 0)
	}
	now := driver.Instant(0)
	round := func(want int, r batch.Result) {
		t.Helper()
		batches := p.send(now)
		if len(batches) != 1 || len(batches[0].Items) != want {
			t.Fatalf("at %v: %d batches, want one of %d: %v", now, len(batches), want, batches)
		}
		b := batches[0]
		if !r.RanOut {
			r.Through = len(b.Items)
		}
		for _, th := range b.Items {
			p.Set(th, now)
		}
		now = now.Add(r.Took)
		p.Done(b, now, r)
		if p.Len() != len(things) {
			t.Fatalf("%d of %d are left", p.Len(), len(things))
		}
	}
	round(100, batch.Result{Took: longest, RanOut: true, Through: 40})
	round(20, batch.Result{Took: time.Second})                        // half of what went through
	round(40, batch.Result{Took: 3 * time.Second})                    // twice as many would still have fitted
	round(45, batch.Result{Took: 4 * time.Second})                    // they did not fit, but a few more may
	round(50, batch.Result{Took: longest, RanOut: true})              // nothing went through
	round(25, batch.Result{Took: time.Second})                        // a half
	round(50, batch.Result{Took: time.Second})                        //
	round(100, batch.Result{Took: longest, RanOut: true, Through: 1}) //
	round(1, batch.Result{Took: longest, RanOut: true})               // one at least
	round(1, batch.Result{Took: time.Second})
	now = now.Add(time.Minute) // a limit learned long ago does not count for ever
	round(100, batch.Result{Took: time.Second})
}

// TestGathersBesideOthers: ten thousand things that were set one after the other share a few
// batches even beside one that is due all the time.
func TestGathersBesideOthers(t *testing.T) {
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
			p.Done(b, now, batch.Result{Through: len(b.Items)})
		}
	}
	// They are spread over half a period, and an eighth of it goes together.
	if batches > 3*5 || shorts < 1000 {
		t.Errorf("%d batches in three periods, and %d of the short one", batches, shorts)
	}
}
