package chaos

import (
	"bytes"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// Direction is a way through a [Proxy].
type Direction int

// The directions.
const (
	ToServer Direction = iota // requests
	ToClient                  // replies and pushes
)

// Proxy stands between clients and a TCP server, and delays, holds back and cuts what passes.
// It does not know the protocol. Its methods are safe for concurrent use.
type Proxy struct {
	Addr     string // where it listens, on the loopback interface
	listener net.Listener
	work     sync.WaitGroup

	mu       sync.Mutex
	upstream string
	rules    [2]rule
	change   chan struct{} // closed when the rules change
	cut      bool
	closed   bool
	links    map[*link]struct{}
}

// rule says what happens to bytes that go one way.
type rule struct {
	hold  bool
	only  string // on connections on which the client has sent this; "": on all
	delay time.Duration
}

// StartProxy starts a proxy for the server at an address, which ends with the
// test.
func StartProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Addr: l.Addr().String(), upstream: upstream, listener: l,
		change: make(chan struct{}), links: map[*link]struct{}{},
	}
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// HoldReplies lets requests through and holds back all that the server sends, until Heal.
func (p *Proxy) HoldReplies() { p.Hold(ToClient, "") }

// HoldRequests holds back all that clients send, until Heal. It arrives then, even if they have
// closed their connections meanwhile.
func (p *Proxy) HoldRequests() { p.Hold(ToServer, "") }

// Hold holds back what goes one way until Heal; then it arrives, in order. If only is not "",
// Hold affects only connections on which the client has sent that text.
func (p *Proxy) Hold(d Direction, only string) {
	p.alter(func() { p.rules[d].hold, p.rules[d].only = true, only })
}

// Delay makes what goes one way take longer, until Heal.
func (p *Proxy) Delay(d Direction, by time.Duration) {
	p.alter(func() { p.rules[d].delay = by })
}

// Cut ends all connections, drops what is on its way, and lets no connection be made until
// Heal.
func (p *Proxy) Cut() {
	p.alter(func() {
		p.cut = true
		for l := range p.links {
			l.close()
		}
	})
}

// Heal ends the effects of Hold, Delay and Cut.
func (p *Proxy) Heal() {
	p.alter(func() { p.rules, p.cut = [2]rule{}, false })
}

// Redirect makes new connections lead to another server, as an address that moves does. Those that there
// are stay where they are.
func (p *Proxy) Redirect(upstream string) {
	p.alter(func() { p.upstream = upstream })
}

// Connections returns how many connections clients have through the proxy.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) alter(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.change)
	p.change = make(chan struct{})
}

func (p *Proxy) close() {
	p.listener.Close()
	p.alter(func() {
		p.closed = true
		for l := range p.links {
			l.close()
		}
	})
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		upstream := p.upstream
		p.mu.Unlock()
		server, err := net.Dial("tcp", upstream)
		if err != nil {
			client.Close()
			continue
		}
		l := &link{proxy: p, ends: [2]net.Conn{ToServer: server, ToClient: client},
			closed: make(chan struct{})}
		p.mu.Lock()
		if p.cut || p.closed {
			l.close()
		} else {
			p.links[l] = struct{}{}
			for _, d := range []Direction{ToServer, ToClient} {
				pieces := make(chan piece, 1024)
				p.work.Go(func() { l.read(d, pieces) })
				p.work.Go(func() { l.write(d, pieces) })
			}
		}
		p.mu.Unlock()
	}
}

// link is one connection through the proxy.
type link struct {
	proxy  *Proxy
	ends   [2]net.Conn // where each direction leads
	once   sync.Once
	closed chan struct{}
	sent   []byte // by the client, up to maxSent bytes; guarded by the proxy's mutex
}

// maxSent is how much of what a client sends is kept for rules.
const maxSent = 16 << 10

// piece is what was read at once.
type piece struct {
	data []byte
	at   time.Time
}

// close resets both connections: unsent data is dropped.
func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		for _, end := range l.ends {
			end.(*net.TCPConn).SetLinger(0)
			end.Close()
		}
	})
}

func (l *link) read(d Direction, pieces chan<- piece) {
	defer close(pieces)
	from := l.ends[1-d]
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if d == ToServer {
			l.proxy.mu.Lock()
			l.sent = append(l.sent, buffer[:min(n, maxSent-len(l.sent))]...)
			l.proxy.mu.Unlock()
		}
		if n > 0 {
			select {
			case pieces <- piece{slices.Clone(buffer[:n]), time.Now()}:
			case <-l.closed:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) write(d Direction, pieces <-chan piece) {
	defer func() {
		l.close()
		l.proxy.mu.Lock()
		delete(l.proxy.links, l)
		l.proxy.mu.Unlock()
	}()
	for piece := range pieces {
		if !l.pass(d, piece.at) {
			return
		}
		if _, err := l.ends[d].Write(piece.data); err != nil {
			return
		}
	}
}

// pass waits until what was read at an instant may go on. It returns false if
// the connection has ended before.
func (l *link) pass(d Direction, at time.Time) bool {
	for {
		l.proxy.mu.Lock()
		rule, change := l.proxy.rules[d], l.proxy.change
		held := rule.hold && bytes.Contains(l.sent, []byte(rule.only))
		l.proxy.mu.Unlock()
		late := make(<-chan time.Time)
		if !held {
			wait := time.Until(at.Add(rule.delay))
			if wait <= 0 {
				return true
			}
			late = time.After(wait)
		}
		select {
		case <-late:
		case <-change:
		case <-l.closed:
			return false
		}
	}
}
