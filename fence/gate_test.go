package fence

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

const (
	exclusive = driver.Exclusive
	shared    = driver.Shared
)

// TestGateTwoMarks walks through the rule of the two marks.
func TestGateTwoMarks(t *testing.T) {
	var g Gate
	for i, step := range []struct {
		token driver.Token
		mode  driver.Mode
		mark  driver.Token // of the refusal; 0: admitted
	}{
		{3, exclusive, 0},
		{3, exclusive, 0}, // the same again
		{2, exclusive, 3}, // an older writer
		{2, shared, 3},    // an older reader
		{6, shared, 0},
		{5, shared, 0},    // readers in any order
		{4, exclusive, 6}, // a writer that readers have replaced
		{3, exclusive, 6},
		{6, exclusive, 0}, // the same hold in another mode
		{9, exclusive, 0},
		{6, shared, 9}, // a reader that a writer has replaced
		{9, shared, 0}, // a downgraded hold
		{8, exclusive, 9},
	} {
		err := g.Admit(step.token, step.mode)
		if step.mark == 0 {
			if err != nil {
				t.Errorf("step %d: %v", i, err)
			}
			continue
		}
		var stale *StaleError
		if !errors.As(err, &stale) || !errors.Is(err, ErrStale) {
			t.Errorf("step %d: %v, want a *StaleError that is ErrStale", i, err)
		} else if want := (StaleError{Token: step.token, Mode: step.mode, Mark: step.mark}); *stale != want {
			t.Errorf("step %d: %+v, want %+v", i, *stale, want)
		}
	}
	if e, s := g.Marks(); e != 9 || s != 9 {
		t.Errorf("marks %d and %d, want 9 and 9", e, s)
	}
}

// TestInvalid offers what can never be admitted to every guard: it is refused
// before anything is touched.
func TestInvalid(t *testing.T) {
	for _, c := range []struct {
		token driver.Token
		mode  driver.Mode
		want  error
	}{
		{0, exclusive, ErrNoToken},
		{0, shared, ErrNoToken},
		{-1, exclusive, ErrInvalid},
		{1 << 53, exclusive, ErrInvalid},
		{1 << 62, shared, ErrInvalid},
		{1, driver.Slot, ErrInvalid},
		{0, driver.Slot, ErrInvalid},
		{1, 3, ErrInvalid},
		{1, 255, ErrInvalid},
	} {
		var gate Gate
		var gates Gates
		work := func() error { t.Errorf("%v token %d: the work ran", c.mode, c.token); return nil }
		for guard, err := range map[string]error{
			"Gate.Admit":  gate.Admit(c.token, c.mode),
			"Gate.Do":     gate.Do(c.token, c.mode, work),
			"Gates.Admit": gates.Admit("a", c.token, c.mode),
			"Gates.Do":    gates.Do("a", c.token, c.mode, work),
			"AdmitTx":     AdmitTx(t.Context(), Postgres, noTx{}, "a", c.token, c.mode),
		} {
			if !errors.Is(err, c.want) || errors.Is(err, ErrStale) {
				t.Errorf("%s of %v token %d: %v, want %v", guard, c.mode, c.token, err, c.want)
			}
		}
		if e, s := gate.Marks(); e != 0 || s != 0 {
			t.Errorf("%v token %d left marks %d and %d", c.mode, c.token, e, s)
		}
	}
	var gate Gate
	if err := gate.Admit(1<<53-1, exclusive); err != nil {
		t.Errorf("the highest token: %v", err)
	}
}

// TestDoIsOneStep has holders with ever newer tokens increment a number by a
// read and a write inside Do, all at once. Each one that Do admitted counts.
func TestDoIsOneStep(t *testing.T) {
	var g Gate
	var tokens, admitted atomic.Int64
	number := int64(0) // guarded by g alone: the race detector watches
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				err := g.Do(driver.Token(tokens.Add(1)), exclusive, func() error {
					number++
					return nil
				})
				if err == nil {
					admitted.Add(1)
				} else if !errors.Is(err, ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if number != admitted.Load() || number == 0 {
		t.Errorf("%d admitted, the number is %d", admitted.Load(), number)
	}
}

// TestDoShared lets two shared holds be at work together, the older one after
// the newer, and a writer in only when both are done.
func TestDoShared(t *testing.T) {
	var g Gate
	var atWork atomic.Int32
	var wrote sync.WaitGroup
	err := g.Do(2, shared, func() error {
		atWork.Add(1)
		defer atWork.Add(-1)
		// One inside the other only here, where no writer can come in between.
		return g.Do(1, shared, func() error {
			wrote.Go(func() {
				err := g.Do(3, exclusive, func() error {
					if n := atWork.Load(); n != 0 {
						t.Errorf("a writer at work beside %d readers", n)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	wrote.Wait()
	if err := g.Do(2, shared, func() error { t.Error("a replaced reader at work"); return nil }); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
}

// TestDoReturnsTheWorksError also checks that a panic leaves the gate open.
func TestDoReturnsTheWorksError(t *testing.T) {
	var g Gate
	broken := errors.New("broken")
	if err := g.Do(1, exclusive, func() error { return broken }); err != broken {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = g.Do(1, exclusive, func() error { panic("work") })
	}()
	if err := g.Do(1, exclusive, func() error { return nil }); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}
