package conformance

import (
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// proxies are one before each server, by its address. It is a drivertest.Transport.
type proxies map[string]*chaos.Proxy

// startProxies starts them before servers. They end with the test.
func startProxies(t testing.TB, servers ...*testserver.Redis) proxies {
	t.Helper()
	p := proxies{}
	for _, r := range servers {
		p[r.Addr] = chaos.StartProxy(t, r.Addr)
	}
	return p
}

// before returns the address of the proxy before a server, or that of the server if there is none.
func (p proxies) before(address string) string {
	if proxy := p[address]; proxy != nil {
		return proxy.Addr
	}
	return address
}

func (p proxies) HoldReplies()  { p.each((*chaos.Proxy).HoldReplies) }
func (p proxies) HoldRequests() { p.each((*chaos.Proxy).HoldRequests) }
func (p proxies) Cut()          { p.each((*chaos.Proxy).Cut) }
func (p proxies) Heal()         { p.each((*chaos.Proxy).Heal) }

func (p proxies) Connections() (n int) {
	p.each(func(proxy *chaos.Proxy) { n += proxy.Connections() })
	return n
}

func (p proxies) each(do func(*chaos.Proxy)) {
	for _, proxy := range p {
		do(proxy)
	}
}
