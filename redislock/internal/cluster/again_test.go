package cluster

import (
	"slices"
	"testing"

	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// TestWaitFollows: a command is redirected, and the WAIT of its key goes after it, behind the command: the
// replicas of the server that has refused it say nothing about it.
func TestWaitFollows(t *testing.T) {
	c := &Conn{closed: true} // it asks nobody
	c.table.Store(&table{owners: []string{"a:1"}})
	command := func(key string, args ...string) wire.Command {
		return wire.Command{Args: args, Key: key}
	}
	commands := []wire.Command{
		command("x", "EVALSHA"), command("y", "EVALSHA"), command("x", "EVALSHA"),
		command("x", "WAIT", "1", "1000"), command("y", "WAIT", "1", "1000"),
	}
	for text, ask := range map[string]bool{"MOVED 5 b:2": false, "ASK 5 b:2": true} {
		refused := wire.Reply{Err: &wire.ServerError{Text: text}}
		replies := []wire.Reply{refused, {Value: "OK"}, refused, {Value: int64(1)}, {Value: int64(1)}}
		rest, _ := c.again([]bundle{{"a:1", false, []int{0, 1, 2, 3, 4}}}, commands, replies)
		if len(rest) != 1 || rest[0].address != "b:2" || rest[0].ask != ask || !slices.Equal(rest[0].at, []int{0, 2, 3}) {
			t.Errorf("%s: %+v", text, rest)
		}
	}
	replies := make([]wire.Reply, len(commands))
	replies[1].Err = &wire.ServerError{Text: "TRYAGAIN a slot is moved"}
	rest, moving := c.again([]bundle{{"a:1", false, []int{0, 1, 2, 3, 4}}}, commands, replies)
	if len(rest) != 1 || !moving || !slices.Equal(rest[0].at, []int{1, 4}) {
		t.Errorf("TRYAGAIN: %+v, %v", rest, moving)
	}
}
