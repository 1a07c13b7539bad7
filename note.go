package holdfast

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/holdfastlock/holdfast/driver"
)

// defaultNote tells an operator where to look for the holder.
var defaultNote = func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	note := fmt.Sprintf("%s on %s, pid %d", filepath.Base(os.Args[0]), host, os.Getpid())
	if len(note) > MaxNote || !utf8.ValidString(note) {
		note = fmt.Sprintf("pid %d", os.Getpid())
	}
	return note
}()

func noteOrDefault(note string) string {
	if note == "" {
		return defaultNote
	}
	return note
}

func checkNote(note string) error {
	switch {
	case len(note) > MaxNote:
		return fmt.Errorf("%d bytes: at most %d are allowed", len(note), MaxNote)
	case !utf8.ValidString(note):
		return errors.New("text that is not valid UTF-8")
	}
	return nil
}

// SetNote changes what operators and watchers see beside the hold: up to MaxNote
// bytes of UTF-8, "" for the default (Options.Note). All leases of the hold have
// the same note. It returns ErrUnsupported if the store cannot change one, what
// Err returns if the lease is over, else the store's error; the note may then
// have changed or not.
func (le *Lease) SetNote(ctx context.Context, note string) error {
	if ctx == nil {
		return errNilContext("set note")
	}
	h, c := le.hold, le.hold.how.client
	a, ok := driver.As[driver.Annotator](c.driver, driver.OpAnnotate)
	if !ok {
		return failed("set note", h.name, ErrUnsupported)
	}
	note = noteOrDefault(note)
	if err := checkNote(note); err != nil {
		return failed("set note", h.name, fmt.Errorf("it has %w", err))
	}
	if err := le.Err(); err != nil {
		return failed("set note", h.name, err)
	}
	if err := c.start(); err != nil {
		return failed("set note", h.name, err)
	}
	defer c.stop()
	c.mu.Lock()
	if e := le.end.Load(); e != nil {
		c.mu.Unlock() // what the store has under the owner may be another's by now
		return failed("set note", h.name, e.err)
	}
	c.keep(h) // whatever the store answers, its note may be another now
	grant := h.grant()
	c.mu.Unlock()
	grant.Note = note
	err := a.Annotate(ctx, grant)
	after := func() {}
	c.mu.Lock()
	switch {
	case err == nil:
		h.ensureExtras().note = &note
	case driver.Gone(err):
		// Its answer says of the hold what a renewal's would.
		after = c.renewed(h, driver.Renewal{Err: err})
	}
	c.mu.Unlock()
	after()
	if over := le.Err(); over != nil {
		err = over
	}
	if err != nil {
		return failed("set note", h.name, err)
	}
	return nil
}
