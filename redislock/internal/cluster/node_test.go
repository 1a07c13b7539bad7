package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// TestPrune: a server loses its slots while a command is under way there. Its reply is still taken, which may
// be the redirection; but a server that does not reply is given up.
func TestPrune(t *testing.T) {
	for name, replies := range map[string]bool{"it replies": true, "it is silent": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				own, server := net.Pipe()
				alive, stop := context.WithCancel(t.Context())
				c := &Conn{alive: alive, stop: stop, nodes: map[string]*node{}, refreshing: true} // it asks nobody
				c.o.Server = func(string) wire.Options {
					return wire.Options{Dialed: &wire.Dialed{}, Dial: func(context.Context) (net.Conn, error) { return own, nil }}
				}
				defer c.Close()
				got := make(chan wire.Reply, 1)
				go func() {
					got <- c.exchange(t.Context(), redirection{address: "old:1"}, []wire.Command{{Args: []string{"GET"}}}, false)[0]
				}()
				text := make([]byte, 200)
				_, err := server.Read(text) // the greeting
				_, err2 := io.WriteString(server, "-ERR no INFO\r\n-ERR no INFO\r\n+PONG\r\n")
				_, err3 := server.Read(text) // the command, which is under way from here on
				testserver.Must(t, err, err2, err3)
				c.table.Store(&table{owners: []string{"new:1"}})
				c.prune()
				time.Sleep(silentFor / 2)
				if replies {
					_, err = io.WriteString(server, "+OK\r\n")
					testserver.Must(t, err)
				}
				if r := <-got; (r.Err == nil) != replies {
					t.Errorf("the reply is %+v", r)
				}
				if _, err := server.Read(text); !errors.Is(err, io.EOF) {
					t.Errorf("the connection is not closed: %v", err)
				}
			})
		})
	}
}
