//go:build soak

package zklock

import (
	"net"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestTickOverTLS: the server's certificate has its name only, not its address.
func TestTickOverTLS(t *testing.T) {
	t.Parallel()
	cert, key := certificateOf(t, "localhost")
	server := testserver.StartZooKeeper(t, testserver.ZooKeeperOptions{TickTime: time.Second, Cert: cert, Key: key})
	_, port, err := net.SplitHostPort(server.TLSAddrs())
	if err != nil {
		t.Fatal(err)
	}
	c, err := openURL(t, "zks://localhost:"+port+"?hf.ca="+cert)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Caps().Guarantees.Lateness; got != 2*time.Second {
		t.Errorf("P5: the server tells a tick of 1 s, and a dead holder's name opens %v late at most", got)
	}
}
