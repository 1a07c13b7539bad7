//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// Inspecting, listing and waiting make, change and delete nothing: they read without a
// lock, and reckon what an operation would write down.

// patience is how long what looks like damage is read again and again: it may be
// a change half done.
const patience = stuckAfter

// stateOf returns the state of a name, as of now. Without a file it is idle.
func (s *store) stateOf(ctx context.Context, p *place, file, name string, now driver.Instant) (*state, error) {
	st, err := p.names.readRecord(ctx, file, nil, parseAll)
	if errors.Is(err, fs.ErrNotExist) {
		return &state{name: name}, nil
	}
	if err != nil {
		return nil, explain(err, name, p.names.at(file))
	}
	same, err := s.sameBoot(p)
	if err != nil {
		return nil, err
	}
	if !same {
		st.reboot(now)
	}
	st.age(now, s.alive)
	return st, nil
}

// age ends the holds and places that have ended by themselves. It grants nothing: only an
// operation does that.
func (s *state) age(now driver.Instant, alive func(string) bool) {
	queue := s.Queue
	s.Queue = nil
	s.Settle(now, &record.Rules{Poll: poll, Alive: alive})
	for i := range queue {
		if p := &queue[i]; now <= p.Until && (p.Client == "" || alive(p.Client)) {
			s.Queue = append(s.Queue, *p)
		}
	}
}

// sameBoot reports whether the records are of this boot of the host.
func (s *store) sameBoot(p *place) (bool, error) {
	if s.attached.Load() {
		return true, nil
	}
	id, err := bootID()
	if err != nil {
		return false, fmt.Errorf("filelock: which boot of the host this is cannot be told: %w", err)
	}
	then, err := readBoot(p.top)
	switch {
	case err == nil && then.id == id:
		return true, nil
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged):
		return s.anybody() // as begin has it: while somebody lives, no boot can have come in between
	case err != nil:
		return false, explain(err, "", p.top.at(bootName))
	}
	live, err := s.anybody()
	if live {
		err = s.otherBoot(then.id, id)
	}
	return false, explain(err, "", p.clients.path)
}

// parser reads the text form, as parseHead.
type parser = func(text []byte) (*state, error)

func parseAll(text []byte) (*state, error) { return parseState(string(text)) }

// readRecord reads a record file without a lock, into the page if that is large enough. The record
// may not be settled.
func (d *folder) readRecord(ctx context.Context, name string, page []byte, parse parser) (*state, error) {
	start, pause := time.Now(), 10*time.Microsecond
	for {
		st, err := d.readOnce(name, page, parse)
		if !errors.Is(err, errDamaged) || time.Since(start) > patience {
			return st, err
		}
		pause = min(2*pause, time.Millisecond)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// readOnce reads a record file once. It returns errDamaged also for a record that is being
// changed.
func (d *folder) readOnce(name string, page []byte, parse parser) (*state, error) {
	f, err := openRecord(d, name, os.O_RDONLY, page)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if err := f.load(); err != nil {
		return nil, err
	}
	if f.head.state == settled {
		return f.parse(parse)
	}
	st, err := d.readOnce(name+oldSuffix, page, parse) // which moves there just now
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: it is being moved", errDamaged)
	}
	return st, err
}

// readName returns the name in a record file, or "" if that cannot be read.
func (d *folder) readName(file string) string {
	st, err := d.readRecord(context.Background(), file, nil, parseHead)
	if err != nil {
		return ""
	}
	return st.name
}
