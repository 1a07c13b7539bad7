package sqllock

import (
	"fmt"
	"maps"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/life"
)

// always are the verdicts that are the same for all dialects.
var always = driver.CommonFaults(map[driver.Fault]driver.Verdict{
	driver.StoreRestart: {
		Exclusion: driver.Keeps, Tokens: driver.Keeps,
		Note: "what was acknowledged is on disk, unless the server is set up not to sync its log at each commit",
	},
	driver.StoreWiped: {
		Exclusion: driver.Breaks, Tokens: driver.Keeps,
		Note: "holds are forgotten, and holders notice at their next renewal: guard the resource with the token. Tokens go on from the wall clock",
	},
	driver.Failover: {
		Exclusion: driver.Breaks, Tokens: driver.Breaks,
		Note: "kept if commits waited for the replica that takes over. Another one may not know the last holds, and its wall clock may be behind: promote none of those, or guard the resource with the token, in this database, which then goes back with it",
	},
	driver.ClockForward: {
		Exclusion: driver.Breaks, Tokens: driver.Keeps,
		Note: "holds end early by as much as the server's clock is set forward: let it be slewed, and guard the resource with the token",
	},
	driver.ClockBack: {
		Exclusion: driver.Delays, Tokens: driver.Breaks,
		Note: "holds of the dead end late by as much. Tokens of a name grow unless it is unused for an hour and the clock is then set back by more than that",
	},
	driver.DiskFull: {
		Exclusion: driver.Delays, Tokens: driver.Keeps,
		Note: "a server that cannot write refuses with an error, and a hold that cannot be renewed ends with its TTL",
	},
})

const lastToken = "The last token of each name, in its row until an hour after its last use, and the "

// guarantees are those of a server of which nothing is known but its dialect.
var guarantees = map[Dialect]driver.Guarantees{
	Postgres: {
		Summary: "The tables and the wall clock of one PostgreSQL server, as durable as its commits.",
		Tokens:  lastToken + "server's wall clock in microseconds.",
		Faults:  always,
	},
	MySQL: {
		Summary: "InnoDB tables and the wall clock of one MariaDB or MySQL 8 server, as durable as its commits.",
		Tokens:  lastToken + "server's wall clock in microseconds.",
		Faults:  always,
	},
	SQLite: {
		Summary: "One file on a local disk, SQLite's locks on it, and the host's wall clock.",
		Tokens:  lastToken + "host's wall clock in microseconds.",
		Faults: with(map[driver.Fault]driver.Verdict{
			driver.Partition: {Exclusion: driver.Impossible, Tokens: driver.Impossible, Note: "the file is on the holder's host"},
			driver.StorePause: {
				Exclusion: driver.Keeps, Tokens: driver.Keeps,
				Note: "there is no server; a process that is stopped while it writes keeps all others out for as long",
			},
			driver.StoreRestart: {
				Exclusion: driver.Keeps, Tokens: driver.Keeps,
				Note: "what was acknowledged is on disk if synchronous is FULL, as it is where the driver opens the file",
			},
			driver.Failover: {Exclusion: driver.Impossible, Tokens: driver.Impossible, Note: "there is no replica"},
			driver.DiskFull: {
				Exclusion: driver.Delays, Tokens: driver.Keeps,
				Note: "what cannot be written fails with an error, and a hold that cannot be renewed ends with its TTL",
			},
		}),
	},
}

// with returns what is always so, but for some.
func with(own map[driver.Fault]driver.Verdict) map[driver.Fault]driver.Verdict {
	all := maps.Clone(always)
	maps.Copy(all, own)
	return all
}

// remembered returns the guarantees where the rule of package life holds, and where a crash empties the tables.
func remembered(g driver.Guarantees, rules life.Rules, unlogged bool) driver.Guarantees {
	if rules.MaxTTL == 0 && !unlogged {
		return g
	}
	const crash = "a server that is stopped keeps all; one that crashes has forgotten all holds, and holders notice at their next renewal"
	own := map[driver.Fault]driver.Verdict{}
	if unlogged {
		g.Summary += " The tables are unlogged: a crash empties them."
		own[driver.StoreRestart] = driver.Verdict{Exclusion: driver.Breaks, Tokens: driver.Keeps, Note: crash}
	}
	if rules.MaxTTL != 0 {
		wait := rules.Wait().Round(time.Second / 10)
		g.Summary += fmt.Sprintf(" A server that has taken over from another grants nothing for %v: the longest TTL (hf.maxttl) and a margin.", wait)
		own[driver.Failover] = driver.Verdict{
			Exclusion: driver.Delays, Tokens: driver.Keeps,
			Note: fmt.Sprintf("a replica that takes over may not know the last holds: it grants nothing for %v, by when all holds of before have ended. The holder of a forgotten hold learns of its loss at its next renewal. Tokens grow unless the new server's wall clock is behind by more than that. Stop or fence the old primary before another takes over, as Patroni and managed services do: one that lives on and takes writes grants beside the new one", wait),
		}
		if unlogged {
			own[driver.StoreRestart] = driver.Verdict{Exclusion: driver.Delays, Tokens: driver.Keeps, Note: crash + fmt.Sprintf(". It grants nothing for %v, by when all of them have ended", wait)}
		}
	}
	g.Faults = with(own)
	return g
}
