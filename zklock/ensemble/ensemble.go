// Package ensemble asks ZooKeeper's servers what they are, and tries what they let clients do. It is for
// holdfast doctor, and for others who look after an ensemble.
package ensemble

import (
	"context"
	"crypto/rand"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/zklock"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// Server is what one server tells of itself.
type Server struct {
	Addr string // host:port, as in the configuration
	Err  error  // why it told nothing; the rest is empty then

	// Role is "leader", "follower", "observer", "standalone" or "read-only"; "not serving" if it looks
	// for a leader, or is a leader that takes no clients; "" if it does not tell.
	Role    string
	Version string // such as 3.9.5
}

// askWithin bounds what one server is asked.
const askWithin = 5 * time.Second

// Ask asks all servers of c at once, each for five seconds at most. It uses Servers, Dial and TLS of c.
func Ask(ctx context.Context, c zklock.Config) []Server {
	servers := make([]Server, len(c.Servers))
	var all sync.WaitGroup
	for i, addr := range c.Servers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askWithin)
			defer cancel()
			info, err := zk.Probe(ctx, wire(c), addr)
			servers[i] = Server{Addr: addr, Err: err}
			if err == nil {
				servers[i].Role = string(info.Role)
				servers[i].Version, _, _ = strings.Cut(info.Version, "-") // of 3.9.5-293c89, built on …
			}
		})
	}
	all.Wait()
	return servers
}

// wire returns how servers are reached.
func wire(c zklock.Config) zk.Config {
	return zk.Config{Servers: c.Servers, Dial: c.Dial, TLS: c.TLS, Timeout: time.Second, AnyServer: true}
}

// Trial is what a client could do.
type Trial struct {
	// Shortest and Longest are the session timeouts that were granted when one of a millisecond, and one
	// of two minutes, were asked for.
	Shortest, Longest time.Duration
	// Anyone says that a client without user and password may delete a node that this client has made.
	Anyone bool
}

// Try opens sessions with the identity of c, makes a node of a session below the prefix's .holdfast,
// which a driver must have made, and has others try to delete it. It leaves nothing behind.
func Try(ctx context.Context, c zklock.Config) (*Trial, error) {
	t, config := &Trial{}, wire(c)
	var acl *zk.ACL // nil: everybody's
	if c.User != "" {
		config.Auth = []zk.Auth{{Scheme: "digest", Credentials: c.User + ":" + c.Password}}
		if !c.Open {
			acl = zk.CreatorACL()
		}
	}
	config.Timeout = time.Millisecond
	short, err := zk.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	t.Shortest = short.Timeout()
	short.Close(ctx)
	config.Timeout = 2 * time.Minute
	s, err := zk.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	defer s.Close(ctx) // which deletes the node, too
	t.Longest = s.Timeout()
	node := path.Join("/", c.Prefix, ".holdfast", "doctor-"+rand.Text())
	made, err := s.Do(ctx, zk.Create(node, nil, acl, zk.Ephemeral))
	if err == nil {
		err = made[0].Err
	}
	if err != nil {
		return nil, fmt.Errorf("creating %s: %w", node, err)
	}
	if stranger, err := zk.Open(ctx, wire(c)); err == nil { // else strangers are refused altogether
		defer stranger.Close(ctx)
		deleted, err := stranger.Do(ctx, zk.Delete(node, zk.AnyVersion))
		t.Anyone = err == nil && deleted[0].Err == nil
	}
	return t, nil
}
