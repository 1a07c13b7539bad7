package cluster

import (
	"slices"
	"testing"

	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// TestWaitFollows: P1: a command is refused, and the WAIT goes with it when it is sent again, behind it: the replicas
// of the server that has refused it say nothing about it.
func TestWaitFollows(t *testing.T) {
	command := func(key, name string) wire.Command { return wire.Command{Args: []string{name}, Key: key} }
	commands := []wire.Command{command("x", "EVALSHA"), command("y", "EVALSHA"), command("x", "WAIT"), command("y", "WAIT")}
	for text, want := range map[string]redirection{
		"MOVED 5 b:2": {address: "b:2"}, "ASK 5 b:2": {address: "b:2", ask: true}, "TRYAGAIN a slot is moved": {},
	} {
		replies := []wire.Reply{{Value: "OK"}, {Err: &wire.ServerError{Text: text}}, {Value: int64(1)}, {Value: int64(1)}}
		at, to, moving := refused("a:1", commands, replies)
		if !slices.Equal(at, []int{1, 3}) || to != want || moving != (want.address == "") {
			t.Errorf("%s: %v to %+v, %v", text, at, to, moving)
		}
	}
	if at, _, _ := refused("a:1", commands, make([]wire.Reply, 4)); at != nil {
		t.Errorf("what was carried out is sent again: %v", at)
	}
}
