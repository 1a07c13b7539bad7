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

// TestModel proves that nothing is lost, late or sent too soon. The tests here say what goes out together.

// thing has its own shard, slack and end.
type thing struct {
	name, shard string
	slack       time.Duration
	end         driver.Instant
	entry       batch.Entry
}

func newPlan() *batch.Plan[*thing] {
	return batch.New(batch.Rules[*thing]{
		Entry:   func(t *thing) *batch.Entry { return &t.entry },
		Slack:   func(t *thing) time.Duration { return t.slack },
		Left:    func(t *thing, now driver.Instant) time.Duration { return t.end.Sub(now) },
		Longest: 5 * time.Second,
		Most:    1000,
	})
}

func send(p *batch.Plan[*thing], now driver.Instant) []batch.Batch[*thing] {
	due := p.Due(now)
	return p.Send(now, due, func(i int) string { return due[i].shard })
}

// expect sends what is due, and compares the batches, such as "A 5s: a b; B 5s: c". They come back at once.
func expect(t *testing.T, p *batch.Plan[*thing], now driver.Instant, want string) {
	t.Helper()
	var texts []string
	for _, b := range send(p, now) {
		text := fmt.Sprintf("%s %v:", b.Shard, b.Within)
		for _, thing := range b.Items {
			text += " " + thing.name
		}
		texts = append(texts, text)
		p.Done(b)
	}
	slices.Sort(texts)
	if got := strings.Join(texts, "; "); got != want {
		t.Errorf("at %v it took %q, want %q", now, got, want)
	}
}

func at(d time.Duration) driver.Instant { return driver.Instant(d) }

// TestSlack: each thing joins a batch as early as its own slack allows, if the batch goes out anyway.
func TestSlack(t *testing.T) {
	p := newPlan()
	for _, th := range []struct {
		name, shard string
		slack       time.Duration
		due         driver.Instant
	}{{"a", "A", 10, 10}, {"b", "A", 5, 15}, {"c", "B", 5, 15}, {"d", "A", 0, 16}, {"e", "A", 90, 20}} {
		p.Set(&thing{name: th.name, shard: th.shard, slack: th.slack, end: at(time.Hour)}, th.due)
	}
	expect(t, p, 9, "") // nothing is due, so nothing goes along
	expect(t, p, 10, "A 5s: a b; B 5s: c")
	if next, ok := p.Next(); !ok || next != 16 { // d may not go early, and the things behind it are not considered
		t.Errorf("next is %v %v", next, ok)
	}
	expect(t, p, 15, "")
	expect(t, p, 16, "A 5s: d e")
}

// TestUrgentApart: urgent things do not cut the time of the others, and neither wait for the others' batch. In a batch
// the most urgent come first.
func TestUrgentApart(t *testing.T) {
	p := newPlan()
	for name, end := range map[string]time.Duration{
		"longer": time.Minute, "long": 20 * time.Second, "short": 600 * time.Millisecond, "shorter": 520 * time.Millisecond,
	} {
		p.Set(&thing{name: name, shard: "A", end: at(end)}, 0)
	}
	expect(t, p, 0, "A 260ms: shorter short; A 5s: long longer")
}

// TestGathers: ten thousand things that were set one after the other share a few batches even beside one that is due
// all the time.
func TestGathers(t *testing.T) {
	const many, period, apart, often = 10_000, 10 * time.Second, time.Millisecond / 2, 30 * time.Millisecond
	p := newPlan()
	for i := range many {
		p.Set(&thing{shard: "A", slack: period / 8, end: at(time.Hour)}, at(period+time.Duration(i)*apart))
	}
	short := &thing{shard: "A", slack: often / 8}
	p.Set(short, 0)
	batches, shorts := 0, 0
	for now, ok := p.Next(); ok && now < at(4*period); now, ok = p.Next() {
		short.end = now.Add(100 * time.Millisecond)
		for _, b := range send(p, now) {
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
	// They are spread over half a period; an eighth of it, or a thousand, goes together.
	if batches > 3*12 || shorts < 1000 {
		t.Errorf("%d batches in three periods, and %d of the short one", batches, shorts)
	}
}

// TestMost: of a hundred thousand things that are due at once a thousand go out together, and more if the store needs so
// long for a batch that they are late.
func TestMost(t *testing.T) {
	for takes, want := range map[time.Duration]int{10 * time.Millisecond: 100, 400 * time.Millisecond: 20} {
		p, now, batches := newPlan(), at(time.Second), 0
		for range 100_000 {
			p.Set(&thing{shard: "A", slack: 1250 * time.Millisecond, end: at(time.Hour)}, now)
		}
		for ; p.Len() > 0; batches++ {
			sent := send(p, now)
			for next, ok := p.Next(); ok && next <= now; next, ok = p.Next() {
				send(p, now) // all others wait
			}
			now = now.Add(takes)
			p.Done(sent[0])
		}
		if batches > want || batches < want/2 {
			t.Errorf("%d batches of %v, want at most %d", batches, takes, want)
		}
	}
}
