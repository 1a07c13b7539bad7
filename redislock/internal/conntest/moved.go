package conntest

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// RunMoved checks what becomes of connections when an operator promotes the replica, lets the address
// lead there, and makes the old primary a replica, which keeps its connections: requests and a
// subscription reach the new primary.
func RunMoved(t *testing.T, connect func(t testing.TB, address string) redislock.Conn) {
	before := testserver.StartRedis(t, testserver.RedisOptions{})
	now := testserver.StartRedisReplicas(t, before, 1, testserver.RedisOptions{})[0]
	address := chaos.StartProxy(t, before.Addr)
	c := connect(t, address.Addr)
	defer c.Close()
	kept := c.Do
	if r, ok := c.(redislock.Reserver); ok {
		kept = r.Reserve()
	}
	write := []redislock.Command{command("SET", "by", "key")}
	arrived := make(chan string, 100)
	stop, err := c.Subscribe(t.Context(), "channel", func(text string) { arrived <- text })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	awaitWrites := func(what string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			err, errKept := c.Do(t.Context(), write)[0].Err, kept(t.Context(), write)[0].Err
			if err == nil && errKept == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("no requests within a minute %s: %v, %v", what, err, errKept)
			}
		}
	}
	awaitWrites("before")

	now.Follow("")
	address.Redirect(now.Addr)
	before.Follow(now.Addr)
	awaitWrites("of the promotion")
	before.Kill() // which may have passed on what is published
	for end := time.After(time.Minute); ; {
		c.Do(t.Context(), []redislock.Command{command("PUBLISH", "channel", "news")})
		select {
		case text := <-arrived:
			if text == "news" {
				return
			}
		case <-time.After(10 * time.Millisecond):
		case <-end:
			t.Fatal("no news within a minute of the promotion")
		}
	}
}
