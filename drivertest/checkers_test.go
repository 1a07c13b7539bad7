package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfastlock/holdfast/driver"
)

func exclusiveHold(token driver.Token, from, until driver.Instant) held {
	return held{driver.Request{Name: "n", Owner: "owner"}, token, from, until}
}

func sharedHold(token driver.Token, from, until driver.Instant) held {
	return held{driver.Request{Name: "n", Owner: "owner", Mode: driver.Shared}, token, from, until}
}

func slotHold(permits int, from, until driver.Instant) held {
	return held{driver.Request{Name: "n", Owner: "owner", Mode: driver.Slot, Slots: 3, Permits: permits}, 0, from, until}
}

func onOther(h held) held {
	h.Name = "other"
	return h
}

func TestScanIntervals(t *testing.T) {
	for name, c := range map[string]struct {
		holds []held
		found int
	}{
		"nothing":                        {nil, 0},
		"one after the other":            {[]held{exclusiveHold(1, 0, 10), exclusiveHold(2, 10, 20)}, 0},
		"written down in any order":      {[]held{exclusiveHold(2, 10, 20), exclusiveHold(1, 0, 10)}, 0},
		"two at once":                    {[]held{exclusiveHold(1, 0, 11), exclusiveHold(2, 10, 20)}, 1},
		"one within the other":           {[]held{exclusiveHold(1, 0, 30), exclusiveHold(2, 10, 20)}, 1},
		"three at once":                  {[]held{exclusiveHold(1, 0, 30), exclusiveHold(2, 10, 20), exclusiveHold(3, 15, 40)}, 2},
		"on two names":                   {[]held{exclusiveHold(1, 0, 11), onOther(exclusiveHold(2, 10, 20))}, 0},
		"never trusted":                  {[]held{exclusiveHold(1, 0, 30), exclusiveHold(2, 20, 10), exclusiveHold(3, 15, 15)}, 0},
		"readers together":               {[]held{sharedHold(1, 0, 10), sharedHold(2, 5, 20)}, 0},
		"a reader beside a writer":       {[]held{exclusiveHold(1, 0, 10), sharedHold(2, 9, 20)}, 1},
		"a writer beside a reader":       {[]held{sharedHold(1, 0, 10), sharedHold(1, 0, 5), exclusiveHold(2, 9, 20)}, 1},
		"a writer after the readers":     {[]held{sharedHold(1, 0, 10), sharedHold(1, 0, 12), exclusiveHold(2, 12, 20)}, 0},
		"permits that fit":               {[]held{slotHold(2, 0, 10), slotHold(1, 5, 15), slotHold(2, 10, 20)}, 0},
		"a permit too many":              {[]held{slotHold(2, 0, 10), slotHold(1, 5, 15), slotHold(1, 9, 20)}, 1},
		"a semaphore beside a mutex":     {[]held{exclusiveHold(1, 0, 10), slotHold(1, 5, 15)}, 1},
		"a long hold over short ones":    {[]held{exclusiveHold(1, 0, 5), exclusiveHold(2, 5, 100), exclusiveHold(3, 50, 60)}, 1},
		"a long reader found at its end": {[]held{sharedHold(1, 0, 100), sharedHold(1, 1, 2), exclusiveHold(2, 99, 120)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			expectFound(t, scanIntervals(c.holds), c.found, "P1:")
		})
	}
}

func expectFound(t *testing.T, found []string, n int, promise string) {
	t.Helper()
	if len(found) != n {
		t.Errorf("found %d, want %d: %q", len(found), n, found)
	}
	for _, f := range found {
		if !strings.HasPrefix(f, promise) {
			t.Errorf("%q does not begin with %s", f, promise)
		}
	}
}

func TestScanTokens(t *testing.T) {
	for name, c := range map[string]struct {
		holds []held
		found int
	}{
		"growing":                    {[]held{exclusiveHold(1, 0, 10), exclusiveHold(2, 10, 20), exclusiveHold(9, 30, 40)}, 0},
		"repeated":                   {[]held{exclusiveHold(1, 0, 10), exclusiveHold(1, 10, 20)}, 1},
		"falling":                    {[]held{exclusiveHold(5, 0, 10), exclusiveHold(4, 10, 20)}, 1},
		"reset":                      {[]held{exclusiveHold(5, 0, 10), exclusiveHold(1, 10, 20), exclusiveHold(2, 20, 30)}, 2},
		"readers in any order":       {[]held{exclusiveHold(1, 0, 10), sharedHold(3, 10, 20), sharedHold(2, 11, 20)}, 0},
		"readers with one token":     {[]held{exclusiveHold(1, 0, 10), sharedHold(2, 10, 20), sharedHold(2, 11, 20)}, 0},
		"a reader with the writer's": {[]held{exclusiveHold(1, 0, 10), sharedHold(1, 10, 20)}, 1},
		"a writer with a reader's":   {[]held{sharedHold(2, 0, 10), exclusiveHold(2, 10, 20)}, 0},
		"a writer below a reader":    {[]held{sharedHold(2, 0, 10), sharedHold(3, 0, 10), exclusiveHold(2, 10, 20)}, 1},
		"never trusted":              {[]held{exclusiveHold(5, 0, 10), exclusiveHold(4, 20, 20)}, 0},
		"on two names":               {[]held{exclusiveHold(5, 0, 10), onOther(exclusiveHold(4, 10, 20))}, 0},
		"slots fence nothing":        {[]held{slotHold(1, 0, 10), slotHold(1, 10, 20)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			expectFound(t, scanTokens(c.holds), c.found, "P3:")
		})
	}
}

func TestScanOrder(t *testing.T) {
	at := func(owner string, asked, queued, granted driver.Instant) place {
		return place{"n", owner, asked, queued, granted}
	}
	elsewhere := at("b", 20, 25, 30)
	elsewhere.name = "other"
	for name, c := range map[string]struct {
		places []place
		found  int
	}{
		"in order":               {[]place{at("a", 0, 5, 30), at("b", 10, 15, 40)}, 0},
		"overtaken":              {[]place{at("a", 0, 5, 40), at("b", 10, 15, 30)}, 1},
		"asked at the same time": {[]place{at("a", 0, 5, 40), at("b", 4, 8, 30)}, 0},
		"two overtook":           {[]place{at("a", 0, 5, 60), at("b", 10, 15, 30), at("c", 20, 25, 40)}, 1},
		"two were overtaken":     {[]place{at("a", 0, 5, 60), at("b", 10, 15, 50), at("c", 20, 25, 40)}, 2},
		"overtaken long ago":     {[]place{at("c", 20, 25, 30), at("d", 6, 40, 45), at("a", 0, 5, 90)}, 1},
		"on two names":           {[]place{at("a", 0, 5, 40), elsewhere}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			expectFound(t, scanOrder(c.places), c.found, "P8:")
		})
	}
}

// historyLine is one operation of a history, with the times of its call and its return.
type historyLine struct {
	action    action
	owner     string
	out       reply
	call, ret int64
}

func written(lines ...historyLine) (history []porcupine.Operation) {
	for i, l := range lines {
		history = append(history, porcupine.Operation{
			ClientId: i % 8, Input: step{l.action, "n", l.owner}, Output: l.out, Call: l.call, Return: l.ret,
		})
	}
	return history
}

func TestCheckLinear(t *testing.T) {
	ok := func(token driver.Token) reply { return reply{done: true, token: token} }
	var no, unknown, done = reply{}, reply{unknown: true}, reply{done: true}
	for name, c := range map[string]struct {
		good    bool
		history []porcupine.Operation
	}{
		"nothing":                   {true, nil},
		"one after the other":       {true, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "a", done, 2, 3}, historyLine{actTry, "b", ok(2), 4, 5})},
		"two at once":               {false, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actTry, "b", ok(2), 2, 3})},
		"token repeats":             {false, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "a", done, 2, 3}, historyLine{actTry, "b", ok(1), 4, 5})},
		"no tokens":                 {true, written(historyLine{actTry, "a", ok(0), 0, 1}, historyLine{actRelease, "a", done, 2, 3}, historyLine{actTry, "b", ok(0), 4, 5})},
		"released while asked":      {true, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "a", done, 2, 9}, historyLine{actTry, "b", ok(2), 3, 4})},
		"refused while held":        {true, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actTry, "b", no, 2, 3})},
		"refused while free":        {false, written(historyLine{actTry, "b", no, 2, 3})},
		"stranger's release":        {true, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "b", done, 2, 3}, historyLine{actTry, "c", no, 4, 5})},
		"stranger's release frees":  {false, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "b", done, 2, 3}, historyLine{actTry, "c", ok(2), 4, 5})},
		"holder's release denied":   {false, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "a", no, 2, 3})},
		"holder's renewal":          {true, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRenew, "a", done, 2, 3})},
		"holder's renewal denied":   {false, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRenew, "a", no, 2, 3})},
		"stranger's renewal":        {false, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRenew, "b", done, 2, 3})},
		"renewal after release":     {false, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "a", done, 2, 3}, historyLine{actRenew, "a", done, 4, 5})},
		"unknown try happened":      {true, written(historyLine{actTry, "a", unknown, 0, 1}, historyLine{actTry, "b", no, 2, 3}, historyLine{actRelease, "a", done, 4, 5}, historyLine{actTry, "b", ok(1), 6, 7})},
		"unknown try did not":       {true, written(historyLine{actTry, "a", unknown, 0, 1}, historyLine{actTry, "b", ok(1), 2, 3})},
		"unknown try happens late":  {true, written(historyLine{actTry, "a", unknown, 0, 1}, historyLine{actTry, "b", ok(1), 2, 3}, historyLine{actRelease, "b", done, 4, 5}, historyLine{actTry, "c", no, 6, 7})},
		"unknown release happened":  {true, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "a", unknown, 2, 3}, historyLine{actTry, "b", ok(2), 4, 5})},
		"unknown release did not":   {true, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "a", unknown, 2, 3}, historyLine{actTry, "b", no, 4, 5})},
		"unknown explains one only": {false, written(historyLine{actTry, "a", ok(1), 0, 1}, historyLine{actRelease, "a", unknown, 2, 3}, historyLine{actTry, "b", ok(2), 4, 5}, historyLine{actTry, "c", ok(3), 6, 7})},
	} {
		t.Run(name, func(t *testing.T) {
			if wrong := checkLinear(c.history, true); (wrong == "") != c.good {
				t.Errorf("checkLinear: %q", wrong)
			}
		})
	}
	refused := written(historyLine{actTry, "a", no, 0, 3}, historyLine{actTry, "b", no, 1, 2})
	if wrong := checkLinear(refused, false); wrong != "" {
		t.Errorf("two that refuse each other: %s", wrong)
	}
	if wrong := checkLinear(make([]porcupine.Operation, 0, 1), true); wrong != "" {
		t.Errorf("an empty history: %s", wrong)
	}
	long := make([]historyLine, maxPiece+1)
	for i := range long {
		long[i] = historyLine{actRelease, "a", done, int64(2 * i), int64(2*i + 1)}
	}
	if wrong := checkLinear(written(long...), true); !strings.Contains(wrong, "too long") {
		t.Errorf("a piece that is too long to check: %q", wrong)
	}
}

// TestScansScale: even a long history is scanned quickly.
func TestScansScale(t *testing.T) {
	const n = 50_000
	holds, places := make([]held, n), make([]place, n)
	for i := range n {
		at := driver.Instant(10 * i)
		holds[i] = exclusiveHold(driver.Token(i+1), at, at+10)
		places[i] = place{"n", "owner", at, at + 1, at + 5}
	}
	begun := time.Now()
	expectFound(t, scanIntervals(holds), 0, "P1:")
	expectFound(t, scanTokens(holds), 0, "P3:")
	expectFound(t, scanOrder(places), 0, "P8:")
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("scanning %d holds took %v", n, took)
	}
}
