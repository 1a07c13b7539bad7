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
		result, err := r.hold()
		switch {
		case result.asked || result.final || once && result.ran:
			return err
		case !result.ran && first:
			return err
		case !result.ran:
			complain(err) // the store worked at the start, so it may work again
		}
		wait := pause.after(time.Since(start))
		if result.ran && !r.flags.quiet {
			again := "standing again"
			if wait > 0 {
				again += fmt.Sprintf(" in %v", wait)
			}
			complain(fmt.Errorf("%s; %s", termText(err), again))
		}
		if by := sleepUnlessAsked(wait, r.signals); by != 0 {
			return &exitError{exitSignal + int(by), nil}
		}
	}
}

// termText says how a term ended.
func termText(err error) string {
	var exit *exitError
	errors.As(err, &exit)
	switch {
	case exit == nil:
		return "the command has ended with exit code 0"
	case exit.code == exitLost:
		return "the office was lost"
	}
	return fmt.Sprintf("the command has ended with exit code %d", exit.code)
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
