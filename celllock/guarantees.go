package celllock

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// lateness is how late the cell ends a session: its member looks twice a second whose time is over, and ends it by two
// entries of the log. If the member has died too, see the note on fail-over. A member that parks the call of a host
// which has vanished without a word extends its session once more, two fifths of the TTL later: see the note on crashes.
const lateness = 2 * time.Second

var guarantees = driver.Guarantees{
	Summary:  "The consensus of a majority of the cell's members, and their monotonic clocks, of which none is compared with another.",
	Lateness: lateness,
	Tokens:   "The revision of the cell's log, which every change increases; it survives everything but the loss of the data.",
	Faults: driver.CommonFaults(map[driver.Fault]driver.Verdict{
		driver.ClientCrash:  {Exclusion: driver.Keeps, Tokens: driver.Keeps, Note: "the holds of a client that died end with their TTL and lock-delay, or with their minimum hold if that is later, its places within two polls; if its host vanishes without closing its connection the TTL may begin once more, two fifths of it later"},
		driver.LateReplies:  {Exclusion: driver.Keeps, Tokens: driver.Keeps, Note: "leases count from the sending of the request, and from how long after its arrival the member extended the session"},
		driver.StorePause:   {Exclusion: driver.Delays, Tokens: driver.Keeps, Note: "another member takes over from a leader that stands still, and that one ends nothing when it goes on of which another has heard; on one member the TTL runs on"},
		driver.StoreRestart: {Exclusion: driver.Delays, Tokens: driver.Keeps, Note: "everything acknowledged is on disk; a cell that starts gives every session its whole TTL, its lock-delay and its minimum holds again, and two seconds"},
		driver.StoreWiped:   {Exclusion: driver.Breaks, Tokens: driver.Breaks, Note: "a cell that is made anew knows no holds, and its revision begins again: raise what guards remember. One member of three may lose its data and be replaced"},
		driver.Failover:     {Exclusion: driver.Delays, Tokens: driver.Keeps, Note: "a new leader knows all that was acknowledged. Sessions that were with a member which dies have their whole TTL, and two seconds, from then on: a dead holder's name opens later by as much at most"},
		driver.ClockForward: {Exclusion: driver.Keeps, Tokens: driver.Keeps, Note: "sessions run by a clock that cannot be set"},
		driver.ClockBack:    {Exclusion: driver.Keeps, Tokens: driver.Keeps, Note: "sessions run by a clock that cannot be set"},
		driver.DiskFull:     {Exclusion: driver.Keeps, Tokens: driver.Keeps, Note: "below a reserve of free space members refuse new sessions, holds and places; sessions are kept alive and holds released all the same"},
	}),
}
