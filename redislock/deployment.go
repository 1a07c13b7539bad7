package redislock

import (
	"errors"
	"fmt"
	"maps"
	"syscall"

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
	// Cluster is a Redis Cluster: masters that have the keys of some hash slots each, with replicas
	// that take over from them.
	Cluster Deployment = "cluster"
)

// ErrFailover says that servers of a deployment answer, but the one that is needed does not, or takes no
// writes. Another may take over from it within seconds.
var ErrFailover = errors.New("a fail-over may be under way")

// InFailover adds ErrFailover to the error of the network by which a deployment's server cannot be reached.
// It returns other errors as they are. Adapters use it.
func InFailover(err error) error {
	errno := syscall.Errno(0)
	switch {
	case !errors.As(err, &errno), errors.Is(err, ErrFailover):
	case errno == syscall.EMFILE, errno == syscall.ENFILE: // this host has no more files: no server is to blame
	default:
		return fmt.Errorf("%w: %w", err, ErrFailover)
	}
	return err
}

// Deployed is a Conn that knows how its servers are deployed.
type Deployed interface {
	Deployment() Deployment
}

// Partitioned is a Conn to servers each of which has a part of the keys, as in a cluster.
type Partitioned interface {
	// Parts returns the servers that have keys at the moment.
	Parts() []string
	// Part returns the server that has the key at the moment, or "" if none is known.
	Part(key string) string
}

// Sharded is a Conn to a cluster with channels that are of one server each: no other server hears of what
// is published there.
type Sharded interface {
	// Join begins to subscribe at the server that has the key at the moment, unless it has done so: to the
	// channel with a hash tag in one of the server's slots. As in Conn.Subscribe, it subscribes again and calls
	// deliver with "" whenever messages may have been lost. It ends when the server has no keys any more, and
	// with Close. A server that knows no such channels, or does not allow them, is not asked again.
	Join(key string, channel func(tag string) string, deliver func(message string))
	// Tag returns the hash tag of the channel that is subscribed at the server that has the key at the
	// moment, or "" if none is.
	Tag(key string) string
}

// nearChannel is the channel of the client at one server of a cluster: see publish in record.lua.
func (c *client) nearChannel(tag string) string { return c.layout.channel(c.id) + "{" + tag + "}" }

// appendNear adds the hash tag of the channel at the server that has the key, if there is one.
func (c *client) appendNear(b []byte, key string) []byte {
	if c.sharded == nil {
		return b
	}
	if tag := c.sharded.Tag(key); tag != "" {
		b = append(append(append(b, '{'), tag...), '}')
	}
	return b
}

// Shard implements driver.Sharder.
func (c *client) Shard(req driver.Request) string {
	if !c.cluster {
		return ""
	}
	return c.part(c.layout.record(req.Name))
}

// part returns the server that has a key, or "" if there is but one, or none is known.
func (c *client) part(key string) string {
	if p, ok := c.conn.(Partitioned); ok {
		return p.Part(key)
	}
	return ""
}

// parts returns the servers that have keys: one that is "" if there is but one.
func (c *client) parts() []string {
	if p, ok := c.conn.(Partitioned); ok {
		return p.Parts()
	}
	return []string{""}
}

// elsewhere begins the name of a client of a cluster. Its subscription may be at another server than the
// lock, which then cannot tell whether anybody is subscribed. Suppose a script took a client for dead
// because nobody here listens to it: the hold that it was told of would be granted to another (P1).
const elsewhere = "~"

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
	if d == Cluster {
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
