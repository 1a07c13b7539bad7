package ensemble

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/zklock"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// Trial is what a client could do.
type Trial struct {
	// Shortest and Longest are the session timeouts that were granted when one of a millisecond, and one
	// of two minutes, were asked for.
	Shortest, Longest time.Duration
	// Writes are how long setData took, one after the other, in order.
	Writes []time.Duration
	// Request is the size in bytes of the largest request that was answered, of those in RequestSizes.
	Request int
	// Others lists what a client without user and password may do with a node that this client has made:
	// "read", "change", "delete", "create beside". It is empty if that client is refused altogether.
	Others []string
	// AnyServer says that no server told that it leads, so that the session was at another one.
	AnyServer bool
}

// RequestSizes are the sizes of requests that are tried. A server whose jute.maxbuffer is the default of
// 1 MiB answers all.
var RequestSizes = []int{1_000_000, 64 << 10, 8 << 10}

// writes is how many are measured.
const writes = 20

// Try opens sessions with the identity of c, makes a node of a session below the prefix's .holdfast,
// which a driver must have made, and tries what it and others may do with it. It leaves nothing behind.
func Try(ctx context.Context, c zklock.Config) (*Trial, error) {
	t := &Trial{}
	config := wire(c)
	config.AnyServer = false
	if c.User != "" {
		config.Auth = []zk.Auth{{Scheme: "digest", Credentials: c.User + ":" + c.Password}}
	}
	config.Timeout = time.Millisecond
	short, err := zk.Open(ctx, config)
	if errors.Is(err, zk.ErrNoLeader) {
		t.AnyServer, config.AnyServer = true, true
		short, err = zk.Open(ctx, config)
	}
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
	defer s.Close(ctx) // a courtesy
	t.Longest = s.Timeout()
	if err := t.write(ctx, s, c); err != nil {
		return nil, err
	}
	return t, t.size(ctx, config)
}

// write makes the node, measures writes, and lets others try.
func (t *Trial) write(ctx context.Context, s *zk.Session, c zklock.Config) error {
	acl := zk.OpenACL()
	if c.User != "" && !c.Open {
		acl = zk.CreatorACL()
	}
	own := "/.holdfast"
	if c.Prefix != "" {
		own = "/" + c.Prefix + own
	}
	node := own + "/doctor-" + rand.Text()
	if err := one(ctx, s, zk.Create(node, nil, acl, zk.Ephemeral)); err != nil {
		return fmt.Errorf("creating %s: %w", node, err)
	}
	for range writes {
		begun := time.Now()
		if err := one(ctx, s, zk.SetData(node, nil, zk.AnyVersion)); err != nil {
			return fmt.Errorf("setting data of %s: %w", node, err)
		}
		t.Writes = append(t.Writes, time.Since(begun))
	}
	t.others(ctx, wire(c), own, node)
	if err := one(ctx, s, zk.Delete(node, zk.AnyVersion)); err != nil && !errors.Is(err, zk.NoNode) { // others may delete it
		return fmt.Errorf("deleting %s: %w", node, err)
	}
	return nil
}

// others tries what a client without an identity may do.
func (t *Trial) others(ctx context.Context, config zk.Config, own, node string) {
	config.Timeout = time.Second
	s, err := zk.Open(ctx, config)
	if err != nil {
		return // refused altogether
	}
	defer s.Close(ctx)
	for _, try := range []struct {
		what string
		op   zk.Op
	}{
		{"read", zk.GetData(node, nil)},
		{"change", zk.SetData(node, nil, zk.AnyVersion)},
		{"create beside", zk.Create(own+"/doctor-"+rand.Text(), nil, zk.OpenACL(), zk.Ephemeral)},
		{"delete", zk.Delete(node, zk.AnyVersion)},
	} {
		if one(ctx, s, try.op) == nil {
			t.Others = append(t.Others, try.what)
		}
	}
}

// size tries requests, each in a session of its own: a server closes the connection of one that is too
// large.
func (t *Trial) size(ctx context.Context, config zk.Config) error {
	config.Timeout = time.Second
	for _, size := range RequestSizes {
		s, err := zk.Open(ctx, config)
		if err != nil {
			return err
		}
		err = one(ctx, s, zk.Exists("/"+strings.Repeat("x", size), nil))
		s.Close(ctx)
		if err == nil || errors.Is(err, zk.NoNode) {
			t.Request = size
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// one does one operation.
func one(ctx context.Context, s *zk.Session, op zk.Op) error {
	replies, err := s.Do(ctx, op)
	if err != nil {
		return err
	}
	return replies[0].Err
}
