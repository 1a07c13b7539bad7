package server

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// patience is how long a member waits for its clients.
type patience struct {
	handshake time.Duration // of TLS, and for the header of a request
	request   time.Duration // for all of a request
	idle      time.Duration // for the next request of a connection
	answer    time.Duration // for the client to take in a part of an answer
}

var usualPatience = patience{handshake: 5 * time.Second, request: 15 * time.Second, idle: 2 * time.Minute, answer: 10 * time.Second}

// Bounds of requests.
const (
	maxHeader  = 16 << 10
	maxRequest = 512 << 10
	// maxStreams is how many calls one connection may have under way. A client opens another one for more.
	maxStreams = 250
)

// newServer returns the server of a member's clients.
func newServer(h http.Handler, p patience, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: h, Protocols: protocols, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: p.handshake, ReadTimeout: p.request, IdleTimeout: p.idle,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, WriteByteTimeout: p.answer,
			MaxEncoderHeaderTableSize: noTable,
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // what strangers send is no error of ours
	}
}

// crowd is a listener that bounds how many connections there are, in all and from each address.
type crowd struct {
	net.Listener
	most, mostEach int
	log            *slog.Logger

	mu   sync.Mutex
	all  int
	each map[netip.Prefix]int
	told time.Time // when it was last told that there are too many
}

func newCrowd(l net.Listener, most, mostEach int, log *slog.Logger) *crowd {
	return &crowd{Listener: l, most: most, mostEach: mostEach, log: log, each: map[netip.Prefix]int{}}
}

// Accept implements net.Listener. What is too much is closed at once.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := neighbourhood(conn.RemoteAddr())
		if c.enter(from) {
			return &visitor{Conn: conn, of: c, from: from}, nil
		}
		conn.Close()
	}
}

// neighbourhood is what counts as one address: an address of IPv4, or a network of IPv6 as one host has it.
func neighbourhood(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() && !ip.IsLoopback() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

func (c *crowd) enter(from netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	// This host's own are bounded in all only: they may be those of a proxy.
	if c.all < c.most && (c.each[from] < c.mostEach || from.Addr().IsLoopback()) {
		c.all++
		c.each[from]++
		return true
	}
	if now := time.Now(); now.Sub(c.told) > time.Minute {
		c.told = now
		c.log.Warn("there are too many connections: new ones are closed", "all", c.all, "from", from.Addr(), "of these", c.each[from])
	}
	return false
}

func (c *crowd) leave(from netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.each[from]--; c.each[from] <= 0 {
		delete(c.each, from)
	}
}

// visitor is a connection that is counted.
type visitor struct {
	net.Conn
	of   *crowd
	from netip.Prefix
	once sync.Once
}

// Close closes the connection.
func (v *visitor) Close() error {
	v.once.Do(func() { v.of.leave(v.from) })
	return v.Conn.Close()
}

// withTLS returns a listener that speaks TLS, with the certificates as they are at each connection.
func withTLS(l net.Listener, c *certificates) net.Listener {
	return tls.NewListener(l, &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
		NextProtos:         []string{"h2", "http/1.1"},
	})
}
