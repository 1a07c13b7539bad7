package rueidisconn

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// A context's end is heard also while the connection is made anew, by the request
// that needs it first and by others.
func TestSilentServer(t *testing.T) {
	ping := []redislock.Command{{Args: []string{"PING"}}}
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	c := fromURL(t, server.Addr)
	defer c.Close()
	if r := c.Do(t.Context(), ping)[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	server.Kill()
	silent, err := net.Listen("tcp", server.Addr) // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	time.Sleep(2 * provenFor) // the connection is known to be gone, or not proven
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		ended := make(chan error, 2)
		for range cap(ended) {
			go func() { ended <- c.Do(ctx, ping)[0].Err }()
		}
		for range cap(ended) {
			select {
			case err := <-ended:
				if err == nil {
					t.Error("a silent server has answered")
				}
			case <-time.After(dialTimeout - time.Second):
				t.Fatal("a request does not hear of the end of its context")
			}
		}
		cancel()
	}
}
