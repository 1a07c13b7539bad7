package redislock

import (
	"context"
	"testing"
	"time"
)

// unlearned is a cluster of which no server is known.
type unlearned struct{ Clustered }

func (unlearned) Part(string) string { return "" }

// TestEachKeyHasItsWait: P1: in a cluster each key has a WAIT of its own, which goes where the key's command goes,
// also if no server is known when the request comes.
func TestEachKeyHasItsWait(t *testing.T) {
	var sent []Command
	all := newAcknowledgers(&link{conn: unlearned{}, cluster: true}, func(_ context.Context, commands []Command) []answer {
		sent = commands
		return make([]answer, len(commands))
	}, 1)
	script := func(key string) Command { return Command{Args: []string{"EVALSHA"}, Key: key} }
	all.route(nil, time.Second)(t.Context(), []Command{script("x"), script("y"), script("x")})
	var got string
	for _, c := range sent {
		got += " " + c.Args[0] + " " + c.Key
	}
	if want := " EVALSHA x EVALSHA y EVALSHA x WAIT x WAIT y"; got != want {
		t.Errorf("sent was%s, not%s", got, want)
	}
}
