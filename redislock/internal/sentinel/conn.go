package sentinel

import (
	"context"
	"errors"

	"github.com/holdfastlock/holdfast/redislock"
)

// follower is a Conn whose connections are of a locator.
type follower struct {
	redislock.Conn
	primary *Locator
}

// Conn returns a Conn over one whose connections are made by the locator. When a reply says that the
// server is a replica, they are made anew. Close closes both.
func Conn(of redislock.Conn, primary *Locator) redislock.Conn { return &follower{of, primary} }

// Do implements redislock.Conn.
func (f *follower) Do(ctx context.Context, commands []redislock.Command) []redislock.Reply {
	replies := f.Conn.Do(ctx, commands)
	f.primary.Note(replies)
	return replies
}

// Reserve implements redislock.Reserver.
func (f *follower) Reserve() func(context.Context, []redislock.Command) []redislock.Reply {
	do := f.Conn.Do
	if r, ok := f.Conn.(redislock.Reserver); ok {
		do = r.Reserve()
	}
	return func(ctx context.Context, commands []redislock.Command) []redislock.Reply {
		replies := do(ctx, commands)
		f.primary.Note(replies)
		return replies
	}
}

// Listen implements redislock.Listener.
func (f *follower) Listen(ctx context.Context, heard func(channel, message string)) (redislock.Listening, error) {
	if l, ok := f.Conn.(redislock.Listener); ok {
		return l.Listen(ctx, heard)
	}
	return nil, errors.ErrUnsupported
}

// Deployment implements redislock.Deployed.
func (f *follower) Deployment() redislock.Deployment { return redislock.Sentinel }

// Close implements redislock.Conn.
func (f *follower) Close() error {
	err := f.Conn.Close()
	f.primary.Close()
	return err
}
