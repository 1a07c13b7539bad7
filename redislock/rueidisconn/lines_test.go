//go:build soak

package rueidisconn

import (
	"net"
	"net/url"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/redislock"
)

// TestLinesFollowTheURL: requests by a line of their own go to the server, user and database of the
// URL, as those of rueidis do, also over TLS and a socket.
func TestLinesFollowTheURL(t *testing.T) {
	ca := newAuthority(t)
	ca.issue("server")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, tlsPort, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{
		"--tls-port", tlsPort, "--tls-ca-cert-file", ca.file("ca.crt"), "--tls-auth-clients", "no",
		"--tls-cert-file", ca.file("server.crt"), "--tls-key-file", ca.file("server.key"),
	}})
	admin := fromURL(t, server.Addr)
	defer admin.Close()
	user := []string{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"}
	if r := admin.Do(t.Context(), []redislock.Command{{Args: user}})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	withoutPassword := []string{"ACL", "SETUSER", "open", "on", "nopass", "~*", "&*", "+@all"}
	if r := admin.Do(t.Context(), []redislock.Command{{Args: withoutPassword}})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, raw := range []string{
		"redis://open:@" + server.Addr + "/3",
		"redis://app:secret@" + server.Addr + "/3",
		"redis+unix://app:secret@" + server.Socket + "?hf.db=3",
		"rediss://app:secret@127.0.0.1:" + tlsPort + "/3?hf.ca=" + ca.file("ca.crt"),
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := Dial(u)
		if err != nil {
			t.Fatal(err)
		}
		l := linesUp(t, conn)
		ask := func(args ...string) any {
			t.Helper()
			r := l.Do(t.Context(), []redislock.Command{{Args: args}})[0]
			if r.Err != nil {
				t.Errorf("%s: %q: %v", u.Redacted(), args, r.Err)
			}
			return r.Value
		}
		if user := ask("ACL", "WHOAMI"); user != u.User.Username() {
			t.Errorf("%s: the user is %v", u.Redacted(), user)
		}
		ask("SET", "key", raw)
		viaRueidis := l.conn.Do(t.Context(), []redislock.Command{{Args: []string{"GET", "key"}}})[0]
		viaReserved := l.kept(t.Context(), []redislock.Command{{Args: []string{"GET", "key"}}})[0]
		if viaRueidis.Value != raw || viaReserved.Value != raw {
			t.Errorf("%s: a key that was set has %+v by rueidis, %+v by the other line", u.Redacted(), viaRueidis, viaReserved)
		}
		ask("SELECT", "0") // the key is not there
		if v := ask("GET", "key"); v != nil {
			t.Errorf("%s: the database is not that of the URL", u.Redacted())
		}
		l.Close()
	}
}
