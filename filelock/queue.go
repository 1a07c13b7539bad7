//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// What an operation does with the part of the queue that it has not read (state.rest).

// ask is record.Record.Ask.
func (t *operation) ask(req driver.Request, client string, queue bool) (*record.Hold, error) {
	if t.Held(req.Owner) == nil {
		t.loadFar(req.Owner)
		if queue && t.Queued(req.Owner) == nil {
			t.prune(t.now)
		}
	}
	return t.Ask(req, client, queue, t.sent, t.now, &t.rules)
}

// release is record.Record.Release, and grants the name to whoever is next in this very step.
func (t *operation) release(owner string, minHold time.Duration, used driver.Token) (held bool) {
	if t.Held(owner) == nil {
		t.loadFar(owner)
		if w, ok := t.behind(owner); ok {
			t.tell(w) // from now on it has to watch another client
		}
	}
	held = t.Release(owner, minHold, used, t.now, &t.rules)
	t.settle()
	return held
}

// line reads one of the lines.
func (s *state) line(at span) record.Place {
	p, err := parsePlace(s.rest[at.start:at.end], s.name)
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return p
}

// loadNext reads the next place. The owner's, if it is far behind, has been withdrawn.
func (s *state) loadNext() {
	if s.far != (span{}) {
		s.rest, s.far = slices.Concat(s.rest[:s.far.start], s.rest[s.far.end:]), span{}
	}
	n := lineLen(s.rest)
	s.Queue = append(s.Queue, s.line(span{0, n}))
	s.rest = s.rest[n:]
	s.Unloaded--
}

// loadFar reads the place of an owner, wherever it is. It is to be called once in an operation.
func (s *state) loadFar(owner string) {
	if s.Unloaded == 0 || s.Queued(owner) != nil {
		return
	}
	// The client follows the owner; a note with this text is the last in its line.
	want := append(appendText(nil, owner), " \""...)
	for from := 0; ; {
		i := bytes.Index(s.rest[from:], want)
		if i < 0 {
			return
		}
		i += from
		at := span{bytes.LastIndexByte(s.rest[:i], '\n') + 1, i + lineLen(s.rest[i:])}
		if p := s.line(at); p.Owner == owner {
			s.Far, s.far = &p, at
			s.FarAhead = len(s.Queue) + bytes.Count(s.rest[:at.start], newline)
			return
		}
		from = at.end
	}
}

// prune drops up to two places that nobody confirms, those first that ended first, as
// record.Record does where it sees them.
func (s *state) prune(now driver.Instant) {
	for range 2 {
		var first span
		earliest := now.Add(-placeLife)
		for at := 0; at < len(s.rest); {
			n := lineLen(s.rest[at:])
			if seen, ok := seen(s.rest[at : at+n]); ok && seen < earliest {
				first, earliest = span{at, at + n}, seen
			}
			at += n
		}
		if first == (span{}) {
			return
		}
		s.rest = slices.Concat(s.rest[:first.start], s.rest[first.end:])
		s.Unloaded--
	}
}

var space = []byte(" ")

// seen returns the second number of a place's line.
func seen(line []byte) (driver.Instant, bool) {
	_, line, _ = bytes.Cut(line, space) // the word
	_, line, _ = bytes.Cut(line, space) // joined
	field, _, _ := bytes.Cut(line, space)
	i, err := strconv.ParseInt(string(field), 10, 64)
	return driver.Instant(i), err == nil
}

// before returns the client of the place that is directly ahead of the owner's, or "" if there is
// none. If that client is known to be dead, it is the next live one.
func (s *state) before(owner string, known, alive func(string) bool) string {
	end := len(s.Queue)
	if s.Far != nil && s.Far.Owner == owner {
		at := len(s.rest)
		if s.far != (span{}) {
			at = s.far.start
		}
		for at > 0 {
			start := at - len(lastLine(s.rest[:at]))
			if client := s.line(span{start, at}).Client; known(client) {
				return client
			}
			at, known = start, alive
		}
	} else {
		end = slices.IndexFunc(s.Queue, func(p record.Place) bool { return p.Owner == owner })
	}
	for i := end - 1; i >= 0; i-- {
		if client := s.Queue[i].Client; known(client) {
			return client
		}
		known = alive
	}
	return ""
}

// behind returns the place that is directly behind the owner's.
func (s *state) behind(owner string) (w waiter, ok bool) {
	var line span
	if s.Far != nil && s.Far.Owner == owner {
		line.start = s.far.end
	} else if i := slices.IndexFunc(s.Queue, func(p record.Place) bool { return p.Owner == owner }); i < 0 {
		return w, false
	} else if i+1 < len(s.Queue) {
		return waiter{s.Queue[i+1].Client, s.Queue[i+1].Owner}, true
	}
	if line.start == len(s.rest) {
		return w, false
	}
	line.end = line.start + lineLen(s.rest[line.start:])
	p := s.line(line)
	return waiter{p.Client, p.Owner}, true
}
