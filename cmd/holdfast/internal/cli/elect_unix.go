//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
)

// elect is the command elect.
func (a *app) elect(f *electFlags, name string, command []string) (result error) {
	path, err := find(command[0])
	if err != nil {
		return err
	}
	s, err := a.open(context.Background(), holdfast.Events{Waiting: waitingHint})
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 64)
	defer func() { closeStore(s, signals, result) }()
	lock := f.lock(s, name, command)
	if err := probe(lock); err != nil {
		return err
	}
	grace, err := f.graceFor(s.Caps())
	if err != nil {
		return err
	}
	for _, h := range inherited() {
		if want := f.wanted(s, name); h.Store == want.Store && h.Name == want.Name {
			return usagef("%q is held by the holdfast around this one: it would wait for itself", name)
		}
	}
	signal.Notify(signals, child.Signals()...)
	r := &runner{store: s, lock: lock, flags: &f.runFlags, signals: signals, name: name, path: path, command: command, grace: grace}
	var pause pauses
	for first := true; ; first = false {
		start := time.Now()
		end, err := r.term()
		switch {
		case end.wanted || end.final || f.once && end.ran:
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
		if by := sleepUnlessEnded(rest, signals); by != 0 {
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
