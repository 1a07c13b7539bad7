package doctor

import (
	"cmp"
	"context"
	"net"
	"strings"
)

// onThisHost reports whether a host, with or without a port, or the path of a socket, is certainly this one.
func onThisHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "" || strings.HasPrefix(host, "/") || host == "localhost" || ip != nil && ip.IsLoopback()
}

// transport checks that what goes to the hosts of a URL is encrypted, or stays on this host. It returns
// nothing if the store was not opened, because then nothing has been sent.
func transport(p Patient, encrypted bool, remedy string) []Finding {
	if p.Client == nil {
		return nil
	}
	f := facts{}
	hosts := cmp.Or(p.URL.Host, p.URL.Query().Get("host")) // PostgreSQL's URLs may have a parameter instead
	for host := range strings.SplitSeq(hosts, ",") {
		if !onThisHost(host) {
			f.add("hosts", host)
		}
	}
	if encrypted {
		f["encrypted"] = "yes"
	}
	return judge(f,
		good("transport", "the store is on this host, so nothing crosses a network", missing("hosts")),
		good("transport", "the connection to ${hosts} is encrypted", has("encrypted")),
		rule{
			"transport", Warning, nil, "the connection to ${hosts}, on another host, is not encrypted",
			"anyone on the network can read the password, and take or break locks", remedy,
		})
}

// transportOf is transport for stores whose URL says by its scheme whether connections are encrypted.
func transportOf(scheme, remedy string) Check {
	return func(_ context.Context, p Patient) []Finding {
		return transport(p, strings.HasPrefix(p.URL.Scheme, scheme), remedy)
	}
}
