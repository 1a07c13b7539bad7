package drivertest

import (
	"slices"
	"strconv"
	"strings"
	"testing"

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

// written returns a history of operations, one after the other, such as "try a 1", which got token 1, "try b no",
// "renew a done" or "release a ?", which got no reply.
func written(lines ...string) (history []porcupine.Operation) {
	actions := map[string]action{"try": actTry, "renew": actRenew, "release": actRelease}
	for i, line := range lines {
		w := strings.Fields(line)
		token, err := strconv.Atoi(w[2])
		history = append(history, porcupine.Operation{
			ClientId: i % 8, Input: step{actions[w[0]], w[1]}, Call: int64(2 * i), Return: int64(2*i + 1),
			Output: reply{done: w[2] == "done" || err == nil, unknown: w[2] == "?", token: driver.Token(token)},
		})
	}
	return history
}

func TestCheckLinear(t *testing.T) {
	const right, wrong = true, false
	atOnce := func(history []porcupine.Operation) []porcupine.Operation {
		history[1].Return = 99
		return history
	}
	lost := slices.Repeat([]string{"release a ?"}, 40) // a withdrawal that gets no reply is repeated
	repeated := written(slices.Concat([]string{"try a ?"}, lost, []string{"release a done", "try b no", "try c 1"})...)
	for name, c := range map[string]struct {
		good    bool
		history []porcupine.Operation
	}{
		"nothing":                            {right, nil},
		"one after the other":                {right, written("try a 1", "release a done", "try b 2")},
		"two at once":                        {wrong, written("try a 1", "try b 2")},
		"token repeats":                      {wrong, written("try a 1", "release a done", "try b 1")},
		"no tokens":                          {right, written("try a 0", "release a done", "try b 0")},
		"released while asked":               {right, atOnce(written("try a 1", "release a done", "try b 2"))},
		"refused while held":                 {right, written("try a 1", "try b no")},
		"refused while free":                 {wrong, written("try b no")},
		"stranger's release":                 {right, written("try a 1", "release b done", "try c no")},
		"stranger's release frees":           {wrong, written("try a 1", "release b done", "try c 2")},
		"holder's release denied":            {wrong, written("try a 1", "release a no")},
		"holder's renewal":                   {right, written("try a 1", "renew a done")},
		"holder's renewal denied":            {wrong, written("try a 1", "renew a no")},
		"stranger's renewal":                 {wrong, written("try a 1", "renew b done")},
		"renewal after release":              {wrong, written("try a 1", "release a done", "renew a done")},
		"unknown try happened":               {right, written("try a ?", "try b no", "release a done", "try b 1")},
		"unknown try did not":                {right, written("try a ?", "try b 1")},
		"unknown try happens late":           {right, written("try a ?", "try b 1", "release b done", "try c no")},
		"unknown release happened":           {right, written("try a 1", "release a ?", "try b 2")},
		"unknown release did not":            {right, written("try a 1", "release a ?", "try b no")},
		"unknown explains one only":          {wrong, written("try a 1", "release a ?", "try b 2", "try c 3")},
		"withdrawn explains no more":         {wrong, written("try a ?", "release a done", "try b no", "try c 1")},
		"often withdrawn explains no more":   {wrong, repeated},
		"withdrawn explains what was before": {right, written("try a ?", "try b no", "release a done", "try c 1")},
	} {
		t.Run(name, func(t *testing.T) {
			if found := checkLinear(c.history, true); (found == "") != c.good {
				t.Errorf("checkLinear: %q", found)
			}
		})
	}
	if found := checkLinear(written("try b no", "try a no"), false); found != "" {
		t.Errorf("two that refuse each other: %s", found)
	}
	long := written(slices.Repeat([]string{"release a done"}, maxPiece+1)...)
	if found := checkLinear(long, true); !strings.Contains(found, "too long") {
		t.Errorf("a piece that is too long to check: %q", found)
	}
}
