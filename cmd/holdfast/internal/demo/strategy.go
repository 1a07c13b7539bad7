package demo

import (
	"context"
	"slices"
	"strings"
)

// strategy is a way to keep two sales of the same item apart.
type strategy struct {
	name  string
	what  string // what the code does, in one line
	wrong bool   // it is expected to go wrong
	locks bool   // it uses the store
	fence bool   // it has the database check tokens
	pause bool   // its first holder is stopped in the middle
	sell  func(*service, context.Context, request) (answer, error)
}

// strategies are shown in this order. The names are an interface.
var strategies = []strategy{
	{
		name: "none", wrong: true, sell: (*service).unguarded,
		what: "read the stock, take the payment, write stock-1 and the order",
	},
	{
		name: "lock", locks: true, fence: true, sell: (*service).locked,
		what: "the same inside a distributed lock, up to the commit, with its fencing token " +
			"checked by the database",
	},
	{
		name: "process-mutex", wrong: true, sell: (*service).mutexed,
		what: "the same inside a sync.Mutex, of which each service has its own",
	},
	{
		name: "released-before-commit", wrong: true, locks: true, sell: (*service).releasedEarly,
		what: "the same inside a distributed lock that is released before the transaction commits",
	},
	{
		name: "paused-unfenced", wrong: true, locks: true, pause: true, sell: (*service).lockedUnfenced,
		what: "a lock with a short TTL; one holder is stopped (SIGSTOP) between its read and " +
			"its write until another has sold, and does not look at its lease again",
	},
	{
		name: "paused-fenced", locks: true, fence: true, pause: true, sell: (*service).lockedFenced,
		what: "the same pause, but the database checks the token at the read and at the write; " +
			"who is refused is asked to try again",
	},
	{
		name: "for-update", sell: (*service).forUpdate,
		what: "no lock in the store: the same inside one transaction, which begins with SELECT " +
			"… FOR UPDATE (package txlock)",
	},
	{
		name: "version", sell: (*service).versioned,
		what: "no lock: the same, but the write takes place only if the item's version is still " +
			"the one that was read (package optimistic); else all over again",
	},
	{
		name: "decrement-then-rollback", sell: (*service).rolledBack,
		what: "no lock: UPDATE … SET stock = stock - 1, rolled back if the stock is then below " +
			"zero, in one transaction with the order, and then the payment",
	},
	{
		name: "insert-unique", sell: (*service).inserted,
		what: "no lock: INSERT the number of an item and the user into a table where both are " +
			"unique, in one transaction with the order, and then the payment",
	},
	{
		name: "atomic-update", sell: (*service).atomic,
		what: "no lock: UPDATE … SET stock = stock - 1 WHERE stock > 0, in one transaction with " +
			"the order, and then the payment; for a single row this is best",
	},
}

// Strategies returns the names of the strategies of the flash sale, in the order in which they are
// shown, and what the code of each does.
func Strategies() (names, what []string) {
	for _, s := range strategies {
		names, what = append(names, s.name), append(what, s.what)
	}
	return names, what
}

// choose returns the strategies with these names, or all if there are no names.
func choose(names []string) ([]strategy, error) {
	if len(names) == 0 {
		return strategies, nil
	}
	var chosen []strategy
	for _, s := range strategies {
		if slices.Contains(names, s.name) {
			chosen = append(chosen, s)
		}
	}
	for _, name := range names {
		if _, ok := find(name); !ok {
			known, _ := Strategies()
			return nil, badOptions("there is no strategy %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

func find(name string) (strategy, bool) {
	i := slices.IndexFunc(strategies, func(s strategy) bool { return s.name == name })
	if i < 0 {
		return strategy{}, false
	}
	return strategies[i], true
}
