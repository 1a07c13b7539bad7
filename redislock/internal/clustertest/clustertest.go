// Package clustertest puts proxies before the servers of a cluster, for the tests of adapters.
package clustertest

import (
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// Proxies are one before each server, by its address. It is a drivertest.Transport.
type Proxies map[string]*chaos.Proxy

// StartProxies starts them. They end with the test.
func StartProxies(t testing.TB, c *testserver.Cluster) Proxies {
	t.Helper()
	p := Proxies{}
	for _, r := range c.Servers {
		p[r.Addr] = chaos.StartProxy(t, r.Addr)
	}
	return p
}

// Before returns the address of the proxy before a server, or that of the server if there is none.
func (p Proxies) Before(address string) string {
	if proxy := p[address]; proxy != nil {
		return proxy.Addr
	}
	return address
}

// HoldReplies implements drivertest.Transport.
func (p Proxies) HoldReplies() { p.each((*chaos.Proxy).HoldReplies) }

// HoldRequests implements drivertest.Transport.
func (p Proxies) HoldRequests() { p.each((*chaos.Proxy).HoldRequests) }

// Cut implements drivertest.Transport.
func (p Proxies) Cut() { p.each((*chaos.Proxy).Cut) }

// Heal implements drivertest.Transport.
func (p Proxies) Heal() { p.each((*chaos.Proxy).Heal) }

// Connections implements drivertest.Transport.
func (p Proxies) Connections() (n int) {
	p.each(func(proxy *chaos.Proxy) { n += proxy.Connections() })
	return n
}

func (p Proxies) each(do func(*chaos.Proxy)) {
	for _, proxy := range p {
		do(proxy)
	}
}
