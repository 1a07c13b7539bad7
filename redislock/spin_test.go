package redislock

import (
	"context"
	"testing"
)

// withoutChannels is a Conn without subscriptions, to a server where every name is held.
type withoutChannels struct{ t testing.TB }

func (c withoutChannels) Do(_ context.Context, commands []Command) []Reply {
	replies := make([]Reply, len(commands))
	for i, cmd := range commands {
		switch cmd.Args[0] {
		case "GET":
			replies[i].Value = "a store"
		case "EVALSHA":
			replies[i].Value = []any{int64(replyHeld), int64(1), int64(1e6), "", int64(1)}
		}
	}
	return replies
}

func (c withoutChannels) Subscribe(context.Context, string, func(string)) (func(), error) {
	c.t.Error("a client that spins subscribes")
	return func() {}, nil
}

func (withoutChannels) Close() error { return nil }

func TestWaitIsChecked(t *testing.T) {
	if d, err := New(t.Context(), withoutChannels{t}, &Options{Wait: "hope"}); err == nil {
		d.Close()
		t.Error("a way to wait that is unknown was taken")
	}
}
