package vote

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

const (
	ttl    = 10 * time.Second
	second = driver.Instant(time.Second)
	soon   = driver.Instant(time.Millisecond) // an answer's arrival
)

var (
	three    = Rules{Nodes: 3, MaxTTL: ttl}
	member   = Memory{Life: 1, Admitted: true}
	newcomer = Memory{Life: 2, Since: 0}
)

// step is a helper that fails unless the step is as wanted.
func expect(t *testing.T, what string, got, want Step) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func TestMemory(t *testing.T) {
	var m Memory
	if three.Counts(m, 100*second) {
		t.Error("a node that has said nothing counts")
	}
	m = m.Learn(7, false, 3*second)
	m = m.Learn(7, false, 5*second)
	delay := driver.Instant(three.Delay())
	if three.Counts(m, 3*second+delay-1) || !three.Counts(m, 3*second+delay) {
		t.Errorf("the delay does not end %v after the first answer", three.Delay())
	}
	if three.Admit(m, 3*second+delay-1) || !three.Admit(m, 3*second+delay) {
		t.Error("the node is not admitted when its delay is over")
	}
	if m = m.Learn(7, true, 6*second); !three.Counts(m, 6*second) || three.Admit(m, 100*second) {
		t.Errorf("a life that another client admitted does not count, or is admitted again: %+v", m)
	}
	if m = m.Learn(8, false, 7*second); three.Counts(m, 16*second) || m.Since != 7*second {
		t.Errorf("a new life counts as the one before: %+v", m)
	}
	if m = m.Learn(0, false, 8*second); three.Counts(m, 100*second) {
		t.Errorf("a life that is not known counts: %+v", m)
	}
	if !(Rules{Nodes: 3}).Counts(Memory{}, 0) {
		t.Error("a node that forgets nothing does not count")
	}
}

func TestAttempt(t *testing.T) {
	a := three.Begin(ttl, 0)
	expect(t, "one of three", a.Answer(0, Given, member, 5, soon), Step{})
	expect(t, "the same again", a.Answer(0, Given, member, 5, soon), Step{})
	expect(t, "two of three", a.Answer(2, Given, member, 9, soon), Step{Grant, 0b101})
	expect(t, "the third", a.Answer(1, Given, member, 7, soon), Step{})
	if a.Given != 0b111 || a.Token != 0 {
		t.Errorf("%+v", a)
	}

	a = three.Begin(ttl, 0)
	a.Answer(0, Given, member, 5, soon)
	a.Answer(1, Refused, member, 0, soon)
	expect(t, "no majority left", a.Answer(2, Lost, Memory{}, 0, soon), Step{Undo, 0b101})
	expect(t, "an answer after that", a.Answer(2, Given, member, 0, soon), Step{Undo, 0b100})
	expect(t, "none after that", a.Answer(0, Lost, Memory{}, 0, soon), Step{Undo, 0b001})
	expect(t, "a refusal after that", a.Answer(1, Refused, member, 0, soon), Step{})

	a = three.Begin(ttl, 0)
	a.Answer(0, Given, member, 5, soon)
	expect(t, "when the validity is over", a.Answer(1, Given, member, 5, a.Until()), Step{Undo, 0b111})

	a = three.Begin(ttl, 0)
	a.Answer(0, Given, member, 5, soon)
	expect(t, "a node in its delay", a.Answer(1, Given, newcomer, 5, soon), Step{})
	expect(t, "with the third", a.Answer(2, Given, member, 5, soon), Step{Grant, 0b111})

	a = three.Begin(ttl, 0)
	a.Answer(0, Given, newcomer, 5, soon)
	expect(t, "two nodes in their delays", a.Answer(1, Given, newcomer, 5, soon), Step{Undo, 0b111})

	a = three.Begin(ttl, 0)
	a.Answer(0, Given, member, 5, soon)
	expect(t, "given up", a.GiveUp(), Step{Undo, 0b111})
	expect(t, "given up twice", a.GiveUp(), Step{})
	if Valid(ttl) != ttl-102*time.Millisecond {
		t.Error("the drift is not a hundredth and 2 ms")
	}
}

func TestAttemptWithToken(t *testing.T) {
	rules := Rules{Nodes: 3, Tokens: true}
	a := rules.Begin(ttl, 0)
	a.Answer(0, Given, member, 5, soon)
	expect(t, "majority", a.Answer(1, Given, member, 9, soon), Step{Write, 0b001})
	expect(t, "another token", a.Answer(2, Given, member, 12, soon), Step{Write, 0b100})
	expect(t, "not written", a.Wrote(0, false, soon), Step{})
	expect(t, "written", a.Wrote(2, true, soon), Step{Grant, 0b111})
	if a.Token != 9 {
		t.Errorf("token %d, want 9, the highest of the majority", a.Token)
	}

	a = rules.Begin(ttl, 0)
	a.Answer(0, Given, member, 9, soon)
	expect(t, "equal tokens", a.Answer(1, Given, member, 9, soon), Step{Grant, 0b011})

	a = rules.Begin(ttl, 0)
	a.Answer(0, Given, member, 5, soon)
	a.Answer(1, Given, member, 9, soon)
	expect(t, "not written by one", a.Wrote(0, false, soon), Step{})
	expect(t, "refused by the other", a.Answer(2, Refused, member, 0, soon), Step{Undo, 0b011})

	a = rules.Begin(ttl, 0)
	a.Answer(0, Given, member, 5, soon)
	a.Answer(1, Given, member, 9, soon)
	expect(t, "written too late", a.Wrote(0, true, a.Until()), Step{Undo, 0b111})
}

func TestRenewal(t *testing.T) {
	valid := second
	r := three.Renew(ttl, valid, 0)
	expect(t, "one", r.Answer(0, Renewed, member, soon), Step{})
	expect(t, "two", r.Answer(1, Renewed, member, soon), Step{Do: Extend})
	expect(t, "a vote that is gone", r.Answer(2, Gone, newcomer, soon), Step{Restore, 0b100})

	r = three.Renew(ttl, valid, 0)
	expect(t, "gone from a node in its delay", r.Answer(0, Gone, newcomer, soon), Step{})
	r.Answer(1, Renewed, member, soon)
	expect(t, "majority without it", r.Answer(2, Renewed, member, soon), Step{Extend, 0b001})

	r = three.Renew(ttl, valid, 0)
	r.Answer(0, Gone, newcomer, soon)
	r.Answer(1, Renewed, member, soon)
	expect(t, "no majority without it", r.Answer(2, Unknown, Memory{}, soon), Step{Do: Fail})

	r = three.Renew(ttl, valid, 0)
	expect(t, "gone from a node that counts", r.Answer(0, Gone, member, soon), Step{Restore, 0b001})
	r.Answer(1, Renewed, member, soon)
	expect(t, "silence", r.Answer(2, Unknown, Memory{}, soon), Step{})
	expect(t, "restored", r.Restored(0, Given, member, soon), Step{Do: Extend})

	r = three.Renew(ttl, valid, 0)
	r.Answer(0, Gone, member, soon)
	r.Answer(1, Renewed, member, soon)
	r.Answer(2, Unknown, Memory{}, soon)
	expect(t, "restored when the validity is over", r.Restored(0, Given, member, valid), Step{Do: Fail})

	r = three.Renew(ttl, valid, 0)
	r.Answer(0, Gone, member, soon)
	r.Answer(1, Gone, member, soon)
	r.Restored(0, Refused, member, soon)
	expect(t, "another has a majority", r.Restored(1, Refused, member, soon), Step{Lose, 0b111})

	r = three.Renew(ttl, valid, 0)
	r.Answer(0, Gone, newcomer, soon)
	expect(t, "the hold ends before they count again", r.Answer(1, Gone, newcomer, soon), Step{Lose, 0b111})

	r = three.Renew(ttl, valid, 0)
	r.Answer(0, Gone, newcomer, soon)
	expect(t, "gone from a node that another asks at the same time", r.Answer(1, Gone, member, soon), Step{Restore, 0b010})
	expect(t, "the other takes it back", r.Restored(1, Refused, member, soon), Step{Do: Fail})

	r = three.Renew(ttl, valid, 0)
	r.Answer(1, Gone, member, soon)
	r.Answer(2, Unknown, Memory{}, soon)
	expect(t, "it may be restored", r.Answer(0, Gone, newcomer, soon), Step{Do: Fail})

	r = three.Renew(ttl, valid, 0)
	r.Answer(0, Broken, member, soon)
	expect(t, "broken", r.Answer(1, Broken, member, soon), Step{Lose, 0b111})

	r = three.Renew(ttl, valid, valid)
	expect(t, "an expired vote", r.Answer(0, Gone, member, valid), Step{})
	expect(t, "two", r.Answer(1, Gone, member, valid), Step{Lose, 0b111})

	r = three.Renew(ttl, valid, valid)
	r.Answer(0, Gone, member, valid)
	r.Answer(1, Renewed, member, valid)
	expect(t, "late, with a majority", r.Answer(2, Renewed, member, valid), Step{Do: Fail})
}

func TestRenewalWithToken(t *testing.T) {
	r := Rules{Nodes: 3, Tokens: true}.Renew(ttl, second, 0)
	r.Answer(0, Gone, member, soon)
	r.Answer(1, Renewed, member, soon)
	expect(t, "restored", r.Restored(0, Given, member, soon), Step{Write, 0b001})
	expect(t, "written", r.Wrote(0, true, soon), Step{Do: Extend})
}
