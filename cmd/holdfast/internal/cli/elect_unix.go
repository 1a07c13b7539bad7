//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
)

// elect is the command elect.
func (a *app) elect(f *electFlags, name string, command []string) error {
	return a.supervise(&f.runFlags, name, command, func(r *runner) error {
		for _, h := range inherited() {
			if want := f.wanted(r.store, name); h.Store == want.Store && h.Name == want.Name {
				return usagef("%q is held by the holdfast around this one: it would wait for itself", name)
			}
		}
		signal.Notify(r.signals, child.Signals()...)
		return r.terms(f.once)
	})
}

// terms stands again and again, until it is told to end.
func (r *runner) terms(once bool) error {
	var pause pauses
	for first := true; ; first = false {
		start := time.Now()
		end, err := r.term()
		switch {
		case end.wanted || end.final || once && end.ran:
			return err
		case !end.ran && first:
			return err
		case !end.ran:
			complain(err) // the store: it was there before, so it may come back
		}
		rest := pause.after(time.Since(start))
		if end.ran {
			complain(fmt.Errorf("%w; standing again%s", endText(err), inAWhile(rest)))
		}
		if by := sleepUnlessEnded(rest, r.signals); by != 0 {
			return &exitError{exitSignal + int(by), nil}
		}
	}
}

// endText says how a command ended.
func endText(err error) error {
	var exit *exitError
	if errors.As(err, &exit) && exit.code == exitLost {
		return errors.New("the office was lost")
	}
	code := exitOK
	if exit != nil {
		code = exit.code
	}
	return fmt.Errorf("the command has ended with exit code %d", code)
}

func inAWhile(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf(" in %v", d)
}

// sleepUnlessEnded sleeps, or returns the signal that asks for the end.
func sleepUnlessEnded(d time.Duration, signals <-chan os.Signal) syscall.Signal {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return 0
		case s := <-signals:
			if ends(s) {
				return s.(syscall.Signal)
			}
		}
	}
}
