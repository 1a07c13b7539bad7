package redislock

import (
	"maps"

	"github.com/holdfastlock/holdfast/driver"
)

// Deployment is how the servers are deployed that keep the locks.
type Deployment string

// The deployments. What a fault can break depends on them: see the driver's Guarantees.
const (
	// Single is one server, or one address behind which a service may put another.
	Single Deployment = ""
	// Sentinel is a primary with replicas, of which sentinels promote one when the primary is gone.
	Sentinel Deployment = "sentinel"
)

// Deployed is a Conn that knows how its servers are deployed.
type Deployed interface {
	Deployment() Deployment
}

// deploymentOf returns how the servers of a Conn are deployed, as far as the Conn knows.
func deploymentOf(conn Conn) Deployment {
	if d, ok := conn.(Deployed); ok {
		return d.Deployment()
	}
	return Single
}

// guaranteesOf returns the guarantees of a deployment.
func guaranteesOf(d Deployment) driver.Guarantees {
	g := guarantees
	g.Faults = maps.Clone(guarantees.Faults)
	if d == Single {
		return g
	}
	const lost = "Replication is asynchronous, so a replica that takes over may not know a hold that was acknowledged: two holders, until the first one's next renewal. "
	if d == Sentinel {
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
	return g
}
