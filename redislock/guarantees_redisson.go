package redislock

import (
	"maps"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// redissonGuarantees are those of a kind of the layout Redisson, from those of the other layout. What a fault
// does to exclusion is the same where the same server keeps the lock.
func redissonGuarantees(of driver.Guarantees, kind RedissonKind) driver.Guarantees {
	g := driver.Guarantees{
		Summary: of.Summary + " And all programs that use the keys: Redisson checks less than Holdfast, and tells no holder of a loss.",
		Tokens:  "None.",
		Faults:  maps.Clone(of.Faults),
	}
	note := func(fault driver.Fault, text string) {
		v := g.Faults[fault]
		v.Note = text
		g.Faults[fault] = v
	}
	note(driver.ClientCrash, "the holds of a client that died end with their TTL")
	if g.Faults[driver.Partition].Exclusion != driver.Breaks { // else what is said of several servers holds here too
		note(driver.Partition, "the holder stops trusting before the store lets the next one in. Programs in Java do not know when to stop")
	}
	note(driver.StoreRestart, "without appendonly yes and appendfsync always holds may be forgotten: set both")
	note(driver.StoreWiped, "holds are forgotten, and holders notice at their next renewal")
	note(driver.ClockForward, "locks end early by as much as the server's clock is set forward, and holders notice at their next renewal: let it be slewed")
	note(driver.ClockBack, "locks of the dead end late by as much")
	switch kind {
	case RedissonLock:
		g.Summary += " Permits of a semaphore end by the server's wall clock for programs in Go, and by their hosts' for those in Java: these must agree with it within the margin of leases. A program in Java whose lockWatchdogTimeout is below 30 s ends the read holds of others if it dies."
		note(driver.ClientCrash, "the holds of a client that died end with their TTL. If a program in Java took permits on a host whose clock was wrong, they end early or late by as much")
	case RedissonFair:
		g.Summary += " The queue runs by the server's wall clock for programs in Go, and by their hosts' for those in Java: where one of these is ahead by a second or more, it may overtake others."
		note(driver.ClientCrash, "the holds of a client that died end with their TTL. If it was the first of the queue, the next waiter is let in after two seconds; if it was one of Redisson's, after the time that this has set, five minutes by default")
	case RedissonFenced:
		return fencedGuarantees(g)
	}
	note(driver.ClientPause, "after a pause of the process a goroutine that does not look at its lease may act beside the next holder, and the resource cannot refuse it")
	for fault, v := range g.Faults {
		v.Tokens, v.Note = driver.Impossible, withoutTokens.Replace(v.Note)
		g.Faults[fault] = v
	}
	return g
}

// fencedGuarantees adds what tokens of Redisson's counter are worth. They do not depend on clocks, but on the
// server's memory.
func fencedGuarantees(g driver.Guarantees) driver.Guarantees {
	g.Tokens = "Redisson's counter of each name, which has no end, and is lost with the server's memory."
	for _, fault := range []driver.Fault{driver.StoreRestart, driver.StoreWiped} {
		v := g.Faults[fault]
		v.Tokens = driver.Breaks
		v.Note += ". Tokens may begin again at 1 then: a guard that has seen higher ones refuses all holders, until the counter is set higher by hand"
		g.Faults[fault] = v
	}
	for _, fault := range []driver.Fault{driver.ClockForward, driver.ClockBack} {
		v := g.Faults[fault]
		v.Tokens = driver.Keeps
		g.Faults[fault] = v
	}
	for fault, v := range g.Faults {
		v.Note = strings.ReplaceAll(v.Note, "wall clock may be behind: then tokens go back", "counter may be behind: then tokens go back")
		g.Faults[fault] = v
	}
	return g
}

// withoutTokens leaves out of a note what only tokens can do.
var withoutTokens = strings.NewReplacer(
	" Guard the resource with the token, and keep the clocks together", " Keep the clocks together",
	" The new master's wall clock may be behind: then tokens go back.", "",
	" The new primary's wall clock may be behind: then tokens go back.", "",
	", and guard the resource with the token", "", ": guard the resource with the token", "",
)
