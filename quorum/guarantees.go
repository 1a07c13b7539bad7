package quorum

import (
	"maps"

	"github.com/holdfastlock/holdfast/driver"
)

// verdict is one on exclusion, where there are no tokens.
func verdict(exclusion driver.Effect, note string) driver.Verdict {
	return driver.Verdict{Exclusion: exclusion, Tokens: driver.Impossible, Note: note}
}

// guarantees are those of nodes of which nothing is known but that they are independent. A fault is of
// fewer than half of the nodes, unless the note says otherwise.
var guarantees = driver.Guarantees{
	Summary: "More than half of several independent stores, and their clocks: each fault of fewer than half of them is outlived, unless it makes votes end early.",
	Tokens:  "There are none: guard the resource in another way, or use one durable store.",
	Faults: map[driver.Fault]driver.Verdict{
		driver.ClientCrash:   verdict(driver.Keeps, "the votes for a client that died end with their TTL and lock-delay, or their minimum hold"),
		driver.ClientPause:   verdict(driver.Breaks, "after a pause of the process a goroutine that does not look at its lease may act beside the next holder, and no token stops it"),
		driver.ClientSuspend: verdict(driver.Keeps, "leases count suspended time: on waking the holder knows that it has lost"),
		driver.Partition:     verdict(driver.Keeps, "a client that reaches a majority goes on; another stops trusting before the nodes let the next one in"),
		driver.LateReplies:   verdict(driver.Keeps, "leases count from before the first request was sent"),
		driver.StorePause:    verdict(driver.Keeps, "a node that stands still delays nobody. If more than half do, nothing is granted, and holders that could not renew have lost"),
		driver.StoreRestart:  verdict(driver.Keeps, "a node that restarts may have forgotten votes, so it gives none until the longest TTL (hf.maxttl) is over, and leases go on while the other votes are a majority. If more than half of the nodes restart within that time, nothing is granted until it is over, and holders that could not renew have lost"),
		driver.StoreWiped:    verdict(driver.Keeps, "as after a restart. A memory snapshot of a virtual machine that is put back is no restart: the votes since are forgotten, nobody notices, and two may have the lock. Restart the server before clients reach it. A minimum hold is forgotten with the votes of more than half of the nodes"),
		driver.Failover:      verdict(driver.Breaks, "a replica that takes over may not know the node's votes: use nodes without replicas"),
		driver.ClockForward:  verdict(driver.Breaks, "votes of a node whose clock is set forward end early. A hold by a bare majority is open to a second holder then; one with the votes of all nodes is not"),
		driver.ClockBack:     verdict(driver.Keeps, "votes of the dead at that node end late by as much, and the other nodes are enough"),
		driver.DiskFull:      verdict(driver.Keeps, "the node refuses, and the others are enough"),
	},
}

// guaranteesOf returns the guarantees of nodes that may forget, of durable ones, or of durable ones whose
// locks have tokens.
func guaranteesOf(durable, tokens bool) driver.Guarantees {
	g := guarantees
	if !durable {
		return g
	}
	g.Summary = "More than half of several independent stores, their disks and their clocks: each fault of fewer than half of them is outlived, unless it makes votes end early, or a disk loses them."
	g.Faults = maps.Clone(g.Faults)
	g.Faults[driver.StoreRestart] = verdict(driver.Keeps, "a node that restarts counts at once, because it has its votes on disk. If more than half of the nodes are away, nothing is granted, and holders that could not renew have lost. If a node is not as durable as was said, two may have the lock")
	g.Faults[driver.StoreWiped] = verdict(driver.Breaks, "a durable node must never come back without its data: leave out hf.durable if one may, or put a new node in its place only when all programs have ended")
	if !tokens {
		return g
	}
	g.Tokens = "The nodes' own tokens: the highest of a majority, which a majority has on disk before the lock is granted."
	for fault, v := range g.Faults {
		v.Tokens = driver.Keeps
		switch fault {
		case driver.ClientPause:
			v.Note = "after a pause of the process a goroutine that does not look at its lease may act beside the next holder: guard the resource with the token"
		case driver.StoreWiped, driver.Failover:
			v.Tokens = driver.Breaks
		case driver.ClockForward:
			v.Note += ": guard the resource with the token"
		case driver.ClockBack:
			v.Tokens = driver.Breaks
			v.Note += ". Tokens grow, unless a name is forgotten, no sooner than ten minutes after its last use by a node's clock, and clocks are then set back to before that use: of more than half of the nodes, or of one that had been set forward"
		}
		g.Faults[fault] = v
	}
	return g
}
