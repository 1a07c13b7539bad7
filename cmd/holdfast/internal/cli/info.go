package cli

import (
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
