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
	return a.withRunner(&f.runFlags, name, command, func(r *runner) error {
		want := f.wanted(r.store, name)
		for _, h := range inherited() {
			if h.Store == want.Store && h.Name == want.Name {
				return usagef("%q is held by the holdfast around this one: it would wait for itself", name)
			}
		}
		signal.Notify(r.signals, child.Signals()...)
		return r.terms(f.once)
	})
}

// terms stands for election again and again, until it is told to end.
func (r *runner) terms(once bool) error {
	var pause pauses
	for first := true; ; first = false {
		start := time.Now()
		ran, last, err := r.hold()
		switch {
		case last, ran && once, !ran && first:
			return err
		case !ran:
			complain(err) // the store worked at the start, so it may work again
		}
		wait := pause.after(time.Since(start))
		if ran && !r.flags.quiet {
			again := "standing again"
			if wait > 0 {
				again += fmt.Sprintf(" in %v", wait)
			}
			term := fmt.Sprintf("the command has ended with exit code %d", codeOf(err))
			if codeOf(err) == exitLost {
				term = "the office was lost"
			}
			complain(errors.New(term + "; " + again))
		}
		if by := sleepUnlessAsked(wait, r.signals); by != 0 {
			return &exitError{exitSignal + int(by), nil}
		}
	}
}

// sleepUnlessAsked sleeps, or returns the signal that asks for the end.
func sleepUnlessAsked(d time.Duration, signals <-chan os.Signal) syscall.Signal {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return 0
		case s := <-signals:
			if asksForEnd(s) {
				return s.(syscall.Signal)
			}
		}
	}
}
