package redislock

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/life"
)

// guarantees are those of one node of which nothing is known: it may or may not
// write its data to disk.
var guarantees = driver.Guarantees{
	Summary: "The memory of one Redis server and its wall clock; its disk, if it is set up to sync each write.",
	Tokens:  "The server's wall clock in microseconds, and the last token of each name until ten minutes after its last use.",
	Faults: driver.CommonFaults(map[driver.Fault]driver.Verdict{
		driver.Partition: {
			Exclusion: driver.Keeps, Tokens: driver.Keeps,
			Note: "the holder stops trusting before the store lets the next one in. A waiter whose subscription is broken when the name would be handed over to it loses its place, and takes one at the end",
		},
		driver.StoreRestart: {
			Exclusion: driver.Breaks, Tokens: driver.Keeps,
			Note: "without appendonly yes and appendfsync always holds may be forgotten: set both, or guard the resource with the token. Tokens go on from the wall clock",
		},
		driver.StoreWiped: {
			Exclusion: driver.Breaks, Tokens: driver.Keeps,
			Note: "holds are forgotten, and holders notice at their next renewal: guard the resource with the token. Tokens go on from the wall clock" + newIdentity,
		},
		driver.Failover: {
			Exclusion: driver.Breaks, Tokens: driver.Breaks,
			Note: "replication is asynchronous: a replica that takes over may not know a hold, and its wall clock may be behind. As long as the old primary takes writes it grants beside the new one: make it a replica, or stop it, before the address that clients know leads elsewhere",
		},
		driver.ClockForward: {
			Exclusion: driver.Breaks, Tokens: driver.Keeps,
			Note: "holds end early by as much as the server's clock is set forward, and holders notice at their next renewal; waiters take their places anew: let it be slewed, and guard the resource with the token",
		},
		driver.ClockBack: {
			Exclusion: driver.Delays, Tokens: driver.Breaks,
			Note: "holds of the dead and places of waiters that are gone end late by as much. Tokens grow, unless a name is forgotten, no sooner than ten minutes after its last use, and the clock is then set back to before that use",
		},
		driver.DiskFull: {
			Exclusion: driver.Delays, Tokens: driver.Keeps,
			Note: "a server that cannot write refuses with an error; with appendfsync everysec what it acknowledged last is lost if it is restarted then",
		},
	}),
}

// newIdentity is what follows from the loss of the key that names the store.
const newIdentity = ". The store's identity is new: All over several stores may take them in another order in clients opened before than in those opened after, so that they wait for each other until their contexts end: open the old ones anew"

// guaranteesOf returns the guarantees of a deployment.
func guaranteesOf(d deployment) driver.Guarantees {
	g := guarantees
	g.Faults = maps.Clone(guarantees.Faults)
	if d == oneServer {
		return g
	}
	const lost = "Replication is asynchronous, so a replica that takes over may not know a hold that was acknowledged: two holders, until the first one's next renewal. "
	if d == withSentinels {
		g.Summary = "The memory and the wall clock of the primary that the sentinels name. A fail-over loses what its replicas have not been sent yet."
		g.Faults[driver.Failover] = driver.Verdict{
			Exclusion: driver.Breaks, Tokens: driver.Breaks,
			Note: lost + "Clients follow within a second of the sentinels' agreement; a fail-over that an operator orders loses what the old primary grants until then. The new primary's wall clock may be behind: then tokens go back. Guard the resource with the token, and keep the clocks together",
		}
		g.Faults[driver.Partition] = driver.Verdict{
			Exclusion: driver.Breaks, Tokens: driver.Breaks,
			Note: "a holder that is cut off alone stops trusting before the server lets the next one in. If the old primary is cut off together with clients and without a majority of the sentinels, both primaries grant, until those clients hear of the new one: set min-replicas-to-write 1 and a short min-replicas-max-lag, and guard the resource with the token",
		}
	}
	if d == clustered {
		g.Summary = "The memory and the wall clock of the master that has the name's hash slot. A fail-over loses what its replicas have not been sent yet."
		g.Tokens = "The wall clock of the name's master in microseconds, and the last token of each name until ten minutes after its last use, which moves with the name when its slot does."
		g.Faults[driver.Failover] = driver.Verdict{
			Exclusion: driver.Breaks, Tokens: driver.Breaks,
			Note: lost + "The new master's wall clock may be behind: then tokens go back. Other masters' names are not touched. Guard the resource with the token, and keep the clocks together",
		}
		g.Faults[driver.Partition] = driver.Verdict{
			Exclusion: driver.Breaks, Tokens: driver.Breaks,
			Note: "a holder that is cut off alone stops trusting before the server lets the next one in. A master that is cut off together with clients grants until cluster-node-timeout is over, and a replica may have taken over by then: guard the resource with the token",
		}
	}
	return g
}

// remembered returns the guarantees where the rule of package life holds. Stops says that a primary without replicas
// stops granting.
func remembered(g driver.Guarantees, d deployment, rules life.Rules, stops bool) driver.Guarantees {
	wait := rules.Wait().Round(time.Second / 10)
	g.Summary += fmt.Sprintf(" A server that may have forgotten holds grants nothing for %v: the longest TTL (hf.maxttl) and a margin.", wait)
	g.Faults = maps.Clone(g.Faults)
	told := fmt.Sprintf("a server that was started or flushed grants nothing for %v, by when all holds of before have ended. The holder of a forgotten hold learns of its loss at its next renewal. Tokens go on from the wall clock", wait)
	g.Faults[driver.StoreRestart] = driver.Verdict{Exclusion: driver.Delays, Tokens: driver.Keeps, Note: told + ". With appendonly yes and appendfsync always no hold is forgotten"}
	g.Faults[driver.StoreWiped] = driver.Verdict{Exclusion: driver.Delays, Tokens: driver.Keeps, Note: told + newIdentity}
	told = fmt.Sprintf("replication is asynchronous, so a server that takes over may not know a hold: it grants nothing for %v, by when all holds of before have ended. The holder of a forgotten hold learns of its loss at its next renewal. Tokens grow unless the new server's wall clock is behind by more than that. ", wait)
	failover := driver.Verdict{Exclusion: driver.Delays, Tokens: driver.Keeps, Note: told + "An old primary that lives on stops granting when it has lost its replicas (min-replicas-to-write)"}
	if !stops {
		failover.Exclusion = driver.Breaks
		failover.Note = told + "But an old primary that lives on grants beside the new one: set min-replicas-to-write 1 and a short min-replicas-max-lag, and guard the resource with the token"
	}
	g.Faults[driver.Failover] = failover
	if d != oneServer {
		v := failover
		v.Note = "a holder that is cut off alone stops trusting before the server lets the next one in. " + strings.ToUpper(told[:1]) + v.Note[1:]
		g.Faults[driver.Partition] = v
	}
	return g
}

// acknowledged returns the guarantees where n replicas must acknowledge each grant and renewal.
func acknowledged(g driver.Guarantees, n int) driver.Guarantees {
	g.Summary += fmt.Sprintf(" Grants and renewals count when %d of its replicas have them in memory.", n)
	g.Faults = maps.Clone(g.Faults)
	if failover := g.Faults[driver.Failover]; failover.Tokens == driver.Keeps { // remembered says so
		if failover.Exclusion == driver.Breaks {
			failover.Note, _, _ = strings.Cut(failover.Note, "But an old primary")
			failover.Note += fmt.Sprintf("An old primary that lives on grants beside the new one as long as %d of its replicas stay with it: ask for as many as there are, or guard the resource with the token. A primary that is cut off from its replicas grants nothing, nor does one that has taken over until as many follow it; what cannot be renewed meanwhile is lost", n)
		}
		g.Faults[driver.Failover] = failover
		return g
	}
	g.Faults[driver.Failover] = driver.Verdict{
		Exclusion: driver.Breaks, Tokens: driver.Breaks,
		Note: fmt.Sprintf("kept if a replica takes over that has acknowledged the hold, with a clock that agrees within the margin of leases: ask for as many replicas as there are, or let only the most advanced one be promoted. Of more replicas than %d the others may not know the hold: guard the resource with the token. A primary that is cut off from its replicas grants nothing, nor does one that has taken over until as many follow it; what cannot be renewed meanwhile is lost", n),
	}
	return g
}

// setnxGuarantees are those of the layout SetNX, from those of the other layout. What a fault does is the
// same where the same server keeps the lock; but a guard refuses stale holders of Holdfast only.
func setnxGuarantees(of driver.Guarantees) driver.Guarantees {
	g := driver.Guarantees{
		Summary: of.Summary + " And all programs that use the key: one that deletes or extends it without comparing the value first frees or keeps another's lock.",
		Tokens:  "As without a layout, among the holders of Holdfast only. Holders of other programs have no tokens, so no guard can refuse them.",
		Faults:  maps.Clone(of.Faults),
	}
	for fault, note := range map[driver.Fault]string{
		driver.ClientPause:  "after a pause of the process a goroutine that does not look at its lease may act beside the next holder; a guard refuses it by its token, but no stale holder of another program",
		driver.Partition:    "the holder stops trusting before the store lets the next one in. Other programs may not know when to stop",
		driver.ClockForward: "locks end early by as much as the server's clock is set forward, and Holdfast's holders notice at their next renewal: let it be slewed",
		driver.ClockBack:    "locks of the dead end late by as much. Tokens grow, unless a name is forgotten, no sooner than ten minutes after its last use, and the clock is then set back to before that use",
	} {
		v := g.Faults[fault]
		if fault == driver.Partition && v.Exclusion != driver.Keeps {
			continue // of more than one server: what is said of those holds here too
		}
		v.Note = note
		g.Faults[fault] = v
	}
	if g.Faults[driver.StoreRestart].Exclusion != driver.Breaks { // the rule of package life holds
		for _, fault := range [...]driver.Fault{driver.StoreRestart, driver.StoreWiped, driver.Failover} {
			v := g.Faults[fault]
			v.Note += ". Other programs do not wait, and may take at once what was forgotten"
			g.Faults[fault] = v
		}
	}
	return g
}

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
