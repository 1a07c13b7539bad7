package drivertest

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestBoundUnknown: a request without a reply that has been withdrawn since explains nothing (P6), however
// often the withdrawal was repeated, and before that it explains what it may have done.
func TestBoundUnknown(t *testing.T) {
	const name = "x"
	for what, c := range map[string]struct {
		withdrawals int  // without a reply, before the one that is confirmed
		early       bool // B is refused before the confirmed withdrawal is sent
		legal       bool
	}{
		"refused while A may have the name":  {early: true, legal: true},
		"refused after A's withdrawal":       {},
		"the same, often repeated":           {withdrawals: 40},
		"refused before, and often repeated": {withdrawals: 40, early: true, legal: true},
	} {
		t.Run(what, func(t *testing.T) {
			var history []porcupine.Operation
			now := int64(0)
			add := func(a action, owner string, out reply) {
				history = append(history, porcupine.Operation{Input: step{a, name, owner}, Output: out, Call: now, Return: now + 1})
				now += 2
			}
			add(actTry, "A", reply{unknown: true})
			if c.early {
				add(actTry, "B", reply{})
			}
			for range c.withdrawals {
				add(actRelease, "A", reply{unknown: true})
			}
			add(actRelease, "A", reply{done: true})
			if !c.early {
				add(actTry, "B", reply{})
			}
			add(actTry, "C", reply{done: true, token: 1})
			if wrong := checkLinear(history, true); (wrong == "") != c.legal {
				t.Errorf("the check says %q", wrong)
			}
		})
	}
}
