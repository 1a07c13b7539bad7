//go:build soak

package celllock

import (
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// calls counts the calls that pass on their way to a member.
type calls struct {
	addr string // where clients come to

	mu sync.Mutex
	of map[string]int // by path
}

func countCalls(t testing.TB, member string) *calls {
	c := &calls{of: map[string]int{}}
	unencrypted := new(http.Protocols)
	unencrypted.SetUnencryptedHTTP2(true)
	onward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: member})
	transport := &http.Transport{Protocols: unencrypted}
	onward.Transport, onward.ErrorLog = transport, log.New(io.Discard, "", 0) // parked calls end with their client
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.of[r.URL.Path]++
		c.mu.Unlock()
		onward.ServeHTTP(w, r)
	}))
	server.Config.Protocols = unencrypted
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	c.addr = server.Listener.Addr().String()
	return c
}

// keptAlive is how many calls of KeepAlive there were.
func (c *calls) keptAlive() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[cellv1connect.SessionsKeepAliveProcedure]
}

// TestManyLeasesAreOneCall: a thousand leases of one client are renewed by one call, beside the one that
// is parked.
func TestManyLeasesAreOneCall(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{})
	c := countCalls(t, server.Addrs())
	d := dial(t, c.addr)
	defer d.Close()
	grants := make([]driver.Grant, 1000)
	var next atomic.Int64
	var taking sync.WaitGroup
	for range 64 {
		taking.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(grants)); i = next.Add(1) - 1 {
				var err error
				if grants[i], err = d.Try(t.Context(), requestFor(fmt.Sprintf("many/%d", i))); err != nil {
					t.Errorf("lease %d: %v", i, err)
					return
				}
			}
		})
	}
	taking.Wait()
	before := c.keptAlive()
	for i, r := range d.Renew(t.Context(), grants) {
		if r.Err != nil {
			t.Fatalf("lease %d: %v", i, r.Err)
		}
	}
	if calls := c.keptAlive() - before; calls < 1 || calls > 2 {
		t.Errorf("%d calls have renewed %d leases, one was right, and one may have been parked meanwhile", calls, len(grants))
	}
}

// TestDueRenewalIsNoCall: a renewal that is due waits for the answer to the parked call, which extends the session. So
// a session whose leases are renewed each third of the TTL needs one call for each.
func TestDueRenewalIsNoCall(t *testing.T) {
	server := testserver.StartCell(t, testserver.CellOptions{Election: quick})
	c := countCalls(t, server.Addrs())
	d := dial(t, c.addr)
	defer d.Close()
	req := requestFor("parked")
	req.TTL = 6 * time.Second // so long that a busy machine renews in time too
	g, err := d.Try(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	const renewals = 6
	for since := g.Since; since < g.Since.Add(renewals*req.TTL/3-req.TTL/6); {
		time.Sleep(since.Add(req.TTL * 8 / 25).Sub(driver.HostClock.Now())) // as package holdfast does
		r := d.Renew(t.Context(), []driver.Grant{g})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		since = r.Since
	}
	if calls := c.keptAlive(); calls > renewals+2 {
		t.Errorf("%d calls for %d renewals: a call for each, and one that is parked, are right", calls, renewals)
	}
}

func requestFor(name string) driver.Request {
	return driver.Request{Name: name, Owner: rand.Text(), TTL: 30 * time.Second}
}
