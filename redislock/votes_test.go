package redislock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// TestLongestTTL: P1: a server keeps the longest TTL of all clients. A client that does not know it yet is told so
// by its next vote, and then by Life.
func TestLongestTTL(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	open := func() vote.Voter {
		d, err := New(t.Context(), dialResp(t, server.Addr), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		v, ok := driver.As[vote.Voter](d)
		if !ok {
			t.Fatal("the driver has no life")
		}
		return v
	}
	short, long := open(), open()
	tell := func(v vote.Voter, own, want time.Duration) vote.Life {
		t.Helper()
		life, _, longest, err := v.Life(t.Context(), own)
		if err != nil || longest != want {
			t.Errorf("Life returns the longest TTL %v, want %v; %v", longest, want, err)
		}
		return life
	}
	vote := func(name string, life vote.Life) bool {
		t.Helper()
		_, same, err := short.Vote(t.Context(), driver.Request{Name: name, Owner: name, TTL: time.Second}, life)
		if err != nil {
			t.Fatal(err)
		}
		return same
	}
	life := tell(short, time.Second, time.Second)
	if !vote("a", life) {
		t.Error("a vote in the present life is said to be none")
	}
	if tell(long, time.Minute, time.Minute) != life {
		t.Error("a longer TTL has begun another life")
	}
	if err := long.Admit(t.Context(), life); err != nil {
		t.Error(err)
	}
	if vote("b", life) {
		t.Error("a client does not hear of a longer TTL than its own")
	}
	if tell(short, time.Second, time.Minute) != life || !vote("c", life) {
		t.Error("a client that has heard of the longer TTL has no vote that counts")
	}
	if _, admitted, _, _ := long.Life(t.Context(), time.Minute); !admitted {
		t.Error("a life that was admitted is admitted no more")
	}
}
