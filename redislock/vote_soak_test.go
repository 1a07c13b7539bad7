//go:build soak

package redislock

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// TestLife: clients agree on a server's life. It ends with the server, although the server's data are on its disk, and
// by FLUSHALL; a vote that is given then is not said to be of that life, and nobody can admit it any more.
func TestLife(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, server *testserver.Redis, conn Conn){
		"restart": func(_ *testing.T, server *testserver.Redis, _ Conn) { server.Kill(); server.Start() },
		"FLUSHALL": func(t *testing.T, _ *testserver.Redis, conn Conn) {
			if r := conn.Do(t.Context(), []Command{{Args: []string{"FLUSHALL"}}})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
		},
	} {
		for _, layout := range []Layout{"", SetNX} {
			t.Run(name+" "+string(layout), func(t *testing.T) {
				server := testserver.StartRedis(t, testserver.RedisOptions{AOF: true})
				var clients []vote.Voter
				for range 2 {
					d, err := New(t.Context(), dialResp(t, server.Addr), &Options{Layout: layout})
					if err != nil {
						t.Fatal(err)
					}
					defer d.Close()
					v, ok := driver.As[vote.Voter](d)
					if !ok {
						t.Fatal("the driver has no life")
					}
					clients = append(clients, v)
				}
				conn := dialResp(t, server.Addr)
				defer conn.Close()
				lives := func(admitted bool) vote.Life {
					t.Helper()
					first, _, _, err := clients[0].Life(t.Context(), time.Minute)
					second, is, _, err2 := clients[1].Life(t.Context(), time.Minute)
					if err != nil || err2 != nil || first != second || first == 0 || is != admitted {
						t.Fatalf("lives %x and %x, admitted: %v, want %v; %v, %v", first, second, is, admitted, err, err2)
					}
					return first
				}
				vote := func(name string, life vote.Life) bool {
					t.Helper()
					r := driver.Request{Name: name, Owner: "owner of " + name, TTL: time.Minute}
					g, same, err := clients[0].Vote(t.Context(), r, life)
					if err != nil || g.Token == 0 {
						t.Fatalf("Vote: %+v, %v", g, err)
					}
					return same
				}
				old := lives(false)
				if !vote("a", old) || vote("b", old+2) {
					t.Error("Vote does not know in which life it was")
				}
				if err := clients[0].Admit(t.Context(), old); err != nil {
					t.Error(err)
				}
				lives(true)
				end(t, server, conn)
				for end := time.Now().Add(hanging); ; time.Sleep(time.Millisecond) { // the connections are made anew
					if _, _, _, err := clients[0].Life(t.Context(), time.Minute); err == nil {
						if _, _, _, err = clients[1].Life(t.Context(), time.Minute); err == nil {
							break
						}
					}
					if time.Now().After(end) {
						t.Fatal("the server does not come back")
					}
				}
				if next := lives(false); next == old || vote("c", old) || !vote("d", next) {
					t.Errorf("after the life %x comes %x", old, next)
				}
				if err := clients[1].Admit(t.Context(), old); err == nil {
					t.Error("a life that is over was admitted")
				}
				lives(false)
			})
		}
	}
}
