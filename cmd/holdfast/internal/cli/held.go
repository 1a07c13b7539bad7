//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// The variables in the environment of run's command.
const (
	envName      = "HOLDFAST_NAME"
	envToken     = "HOLDFAST_TOKEN"
	envSequencer = "HOLDFAST_SEQUENCER"
	envHeld      = "HOLDFAST_HELD"
)

// held is one of the holds in HOLDFAST_HELD.
type held struct {
	Store     string         `json:"store"` // the store's identity, without secrets
	Name      string         `json:"name"`  // as the store knows it, with the prefix
	Mode      string         `json:"mode"`  // exclusive, shared or slot
	Token     holdfast.Token `json:"token"`
	Slots     int            `json:"slots,omitempty"`
	Permits   int            `json:"permits,omitempty"`
	Sequencer string         `json:"sequencer"`
}

// inherited returns the holds that this process runs under, the innermost last, as far as the variable can be parsed.
// Without it the store decides who may have the lock.
func inherited() (list []held) {
	json.Unmarshal([]byte(os.Getenv(envHeld)), &list)
	return list
}

// environment returns the environment of a command that runs under the hold h on name, and under
// the holds of list, of which h is one. It replaces the inherited variables.
func environment(name string, h held, list []held) []string {
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		key, _, _ := strings.Cut(entry, "=")
		return slices.Contains([]string{envName, envToken, envSequencer, envHeld}, key)
	})
	text, _ := json.Marshal(list) // strings and numbers
	return append(env,
		envName+"="+name,
		envToken+"="+strconv.FormatInt(int64(h.Token), 10),
		envSequencer+"="+h.Sequencer,
		envHeld+"="+string(text))
}

// wanted describes the hold that the flags ask for.
func (f *runFlags) wanted(s *store, name string) held {
	h := held{Store: s.Caps().Store, Name: s.prefix + name, Mode: driver.Exclusive.String()}
	switch {
	case f.shared:
		h.Mode = driver.Shared.String()
	case f.slots > 0:
		h.Mode, h.Slots, h.Permits = driver.Slot.String(), f.slots, max(f.permits, 1)
	}
	return h
}

// suffices reports whether a process that has h need not take want. It is an error if the process
// could never get want because it has h.
func (h held) suffices(want held) (bool, error) {
	slot, wantsSlot := h.Mode == driver.Slot.String(), want.Mode == driver.Slot.String()
	switch {
	case slot != wantsSlot: // the store will refuse the other kind of lock
		return false, nil
	case slot && want.Permits > h.Permits && want.Permits+h.Permits <= want.Slots:
		return false, nil
	case slot && want.Permits <= h.Permits, !slot && (h.Mode == want.Mode || h.Mode == driver.Exclusive.String()):
		return true, nil
	}
	return false, fmt.Errorf("%q is held by the run around this one, in a mode that is not enough: it would wait for itself", want.Name)
}

// outerHold returns a hold around this process that makes want unnecessary, if there is one and
// the store confirms it.
func (s *store) outerHold(ctx context.Context, want held, outer []held) (*held, error) {
	for _, h := range outer {
		if h.Store != want.Store || h.Name != want.Name {
			continue
		}
		if h.Token == 0 {
			return nil, storeError(fmt.Errorf("%q is held by the run around this one in the second store, "+
				"which cannot confirm that: it would wait for itself", want.Name))
		}
		// The variable may be old or forged, so the store is asked. The sequencer must name the
		// hold that the other fields describe.
		seq, err := driver.ParseSequencer(h.Sequencer)
		if err != nil || seq.Name != h.Name || seq.Mode.String() != h.Mode || seq.Token != h.Token ||
			s.CheckSequencer(ctx, h.Sequencer) != nil {
			continue
		}
		enough, err := h.suffices(want)
		if err != nil {
			return nil, usagef("%w", err)
		}
		if enough {
			return &h, nil
		}
	}
	return nil, nil
}
