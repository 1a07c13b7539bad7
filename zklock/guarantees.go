package zklock

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// guarantees says what remains of the promises. Tick is how late sessions end, at most. AnyServer says that
// sessions are not kept at the leader, because it takes no clients or cannot be found.
func guarantees(tick time.Duration, anyServer bool) driver.Guarantees {
	verdict := func(exclusion driver.Effect, note string) driver.Verdict {
		return driver.Verdict{Exclusion: exclusion, Tokens: driver.Keeps, Note: note}
	}
	g := driver.Guarantees{
		Summary: "The consensus of a majority of the ensemble's servers, and its leader's monotonic clock, by which it ends sessions.",
		// A session has a whole number of seconds, and ends up to a tick late.
		Lateness: time.Second + tick,
		Tokens:   "The zxid of the transaction that made the hold's node. It grows with every change of the ensemble, and survives everything but the loss of the data.",
		Faults: driver.CommonFaults(map[driver.Fault]driver.Verdict{
			driver.ClientCrash:  verdict(driver.Keeps, "the holds and places of a client that died end with their sessions: with their TTL and lock-delay, in whole seconds, counted from its last sign of life"),
			driver.Partition:    verdict(driver.Keeps, "only a write that a majority has committed renews a hold, so the holder stops trusting before the leader ends its session"),
			driver.StorePause:   verdict(driver.Delays, "another server takes over from a leader that stands still, and gives every session its whole timeout again; one server alone ends sessions when it goes on"),
			driver.StoreRestart: verdict(driver.Delays, "everything acknowledged is on disk, unless forceSync is off; a server that starts gives every session its whole timeout again"),
			driver.StoreWiped:   {Exclusion: driver.Breaks, Tokens: driver.Breaks, Note: "an ensemble that is made anew knows no holds, and its zxid begins again: use another prefix, and raise what guards remember. One server of three may lose its data and be replaced"},
			driver.Failover:     verdict(driver.Delays, "a new leader knows all that was acknowledged, and gives every session its whole timeout again: a dead holder's name opens later by as much at most"),
			driver.ClockForward: verdict(driver.Keeps, "sessions run by a clock that cannot be set"),
			driver.ClockBack:    verdict(driver.Keeps, "sessions run by a clock that cannot be set"),
			driver.DiskFull:     verdict(driver.Delays, "a server that cannot write its log serves nobody; the others go on while they are a majority. One that got room again and was not restarted may have a gap in its log (ZOOKEEPER-4882): give it an empty data directory before it is started again. 3.9.5 refuses to start with the gap; 3.8.0 does not look for it, and may forget what was acknowledged"),
		}),
	}
	if anyServer {
		g.Summary = "The consensus of a majority of the ensemble's servers; its leader takes no clients, or cannot be found, so sessions are trusted as far as a follower tells."
		g.Faults[driver.StorePause] = verdict(driver.Breaks, "a follower answers for a leader that stands still and has not heard of the session: let the leader take clients (leaderServes=yes, srvr in 4lw.commands.whitelist), or guard the resource with the token")
		g.Faults[driver.Partition] = verdict(driver.Breaks, "a follower that is cut off from the leader goes on to answer for a while: let the leader take clients (leaderServes=yes, srvr in 4lw.commands.whitelist), or guard the resource with the token")
	}
	return g
}
