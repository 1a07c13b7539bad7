package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// The JSON form of a name's state. It is an interface: fields may be added, and none changes.
type (
	infoJSON struct {
		Name      string       `json:"name"`
		Mode      string       `json:"mode,omitempty"`
		Slots     int          `json:"slots,omitempty"`
		Holders   []holderJSON `json:"holders"`
		Waiters   []waiterJSON `json:"waiters"`
		ClosedFor seconds      `json:"closed_for_seconds,omitempty"`
	}
	holderJSON struct {
		Mode    string         `json:"mode"`
		Permits int            `json:"permits,omitempty"`
		Token   holdfast.Token `json:"token"`
		Note    string         `json:"note"`
		Held    seconds        `json:"held_seconds"`
		Expires seconds        `json:"expires_seconds"`
	}
	waiterJSON struct {
		Mode    string  `json:"mode"`
		Permits int     `json:"permits,omitempty"`
		Note    string  `json:"note"`
		Waiting seconds `json:"waiting_seconds"`
	}
)

// seconds is a duration in JSON: a number, rounded to milliseconds.
type seconds float64

func inSeconds(d time.Duration) seconds {
	return seconds(d.Round(time.Millisecond).Seconds())
}

// infoAsJSON leaves the owners out: whoever knows an owner could release the hold.
func infoAsJSON(info holdfast.Info) infoJSON {
	j := infoJSON{
		Name: info.Name, Mode: heldMode(info), Slots: info.Slots, ClosedFor: inSeconds(info.ClosedFor),
		Holders: []holderJSON{}, Waiters: []waiterJSON{},
	}
	for _, h := range info.Holders {
		j.Holders = append(j.Holders, holderAsJSON(h))
	}
	for _, w := range info.Waiters {
		j.Waiters = append(j.Waiters, waiterJSON{w.Mode.String(), w.Permits, w.Note, inSeconds(w.Waiting)})
	}
	return j
}

func holderAsJSON(h driver.Holder) holderJSON {
	return holderJSON{h.Mode.String(), h.Permits, h.Token, h.Note, inSeconds(h.Held), inSeconds(h.Expires)}
}

// heldMode returns the mode in which a name is held, or wanted by waiters.
func heldMode(info holdfast.Info) string {
	switch {
	case len(info.Holders) > 0:
		return info.Holders[0].Mode.String()
	case len(info.Waiters) > 0:
		return info.Waiters[0].Mode.String()
	}
	return ""
}

// printJSON prints one object on one line.
func printJSON(v any) error {
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// durationText returns a duration in a form that is easy to read.
func durationText(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// modeText says in a table what a holder has or a waiter wants.
func modeText(mode driver.Mode, permits, slots int) string {
	if mode == driver.Slot {
		return fmt.Sprintf("%d of %d", permits, slots)
	}
	return mode.String()
}
