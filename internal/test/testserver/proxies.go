package testserver

import (
	"testing"

	"github.com/holdfastlock/holdfast/chaos"
)

// Proxies stand before the servers of one store, and do the same at the same time. They are the
// drivertest.Transport of the clients that use their addresses.
type Proxies []*chaos.Proxy

// StartProxies starts a proxy before each server, and returns the addresses of the proxies too.
func StartProxies(t testing.TB, servers ...string) (ps Proxies, addrs []string) {
	t.Helper()
	for _, server := range servers {
		p := chaos.StartProxy(t, server)
		ps, addrs = append(ps, p), append(addrs, p.Addr)
	}
	return ps, addrs
}

func (ps Proxies) each(do func(*chaos.Proxy)) {
	for _, p := range ps {
		do(p)
	}
}

// HoldReplies is chaos.Proxy.HoldReplies at each proxy.
func (ps Proxies) HoldReplies() { ps.each((*chaos.Proxy).HoldReplies) }

// HoldRequests is chaos.Proxy.HoldRequests at each proxy.
func (ps Proxies) HoldRequests() { ps.each((*chaos.Proxy).HoldRequests) }

// Cut is chaos.Proxy.Cut at each proxy.
func (ps Proxies) Cut() { ps.each((*chaos.Proxy).Cut) }

// Heal is chaos.Proxy.Heal at each proxy.
func (ps Proxies) Heal() { ps.each((*chaos.Proxy).Heal) }

// Connections returns how many connections all proxies have together.
func (ps Proxies) Connections() (n int) {
	ps.each(func(p *chaos.Proxy) { n += p.Connections() })
	return n
}
