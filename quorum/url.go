package quorum

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Opener returns what opens a quorum by a URL, for driver.Register. The URL lists the nodes' hosts,
// each with a port or without:
//
//	redlock://user:password@a,b:6380,c:6379/0?hf.maxttl=1m
//
// The parameters hf.maxttl and hf.durable (yes or no) are Options.MaxTTL and Options.Durable.
//
// Each node is opened by the same URL with its own host, and with the scheme given here, which the
// program must have registered. Params are the parameters that go to the nodes. Opening succeeds when a
// majority of the nodes is open; the others are opened when they answer. The hosts, the path and those
// parameters are the identity of the quorum (driver.Caps.Store), so all programs must write them alike,
// in any order.
func Opener(scheme string, params ...string) driver.Opener {
	return func(ctx context.Context, u *url.URL) (driver.Driver, error) {
		nodes, store, o, err := parse(u, scheme, params)
		if err != nil {
			return nil, err
		}
		d, err := Open(ctx, store, nodes, o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
		}
		return d, nil
	}
}

// parse returns the nodes of a URL, and the identity of the quorum.
func parse(u *url.URL, scheme string, params []string) (nodes []Node, store string, o *Options, err error) {
	given, err := driver.Params(u, false, append([]string{"hf.durable", "hf.maxttl"}, params...)...)
	if err != nil {
		return nil, "", nil, err
	}
	if o, err = options(given); err != nil {
		return nil, "", nil, err
	}
	query := u.Query()
	query.Del("hf.durable")
	query.Del("hf.maxttl")
	hosts := strings.Split(u.Host, ",")
	if u.Opaque != "" || u.Fragment != "" || slices.Contains(hosts, "") {
		return nil, "", nil, fmt.Errorf("store URL is malformed: it looks like %s://a,b,c or %s://user:password@a:1234,b:1234,c:1234", u.Scheme, u.Scheme)
	}
	if len(hosts) < 3 {
		return nil, "", nil, errors.New("store URL has fewer than three nodes: three outlive the loss of one, five that of two")
	}
	for _, host := range hosts {
		one := *u
		one.Scheme, one.Host, one.RawQuery = scheme, host, query.Encode()
		if strings.Count(host, ":") > 1 && !strings.HasPrefix(host, "[") {
			return nil, "", nil, errors.New("store URL has a node with two colons: an IPv6 address is in brackets, [::1]:6379")
		}
		nodes = append(nodes, Node{Name: host, Open: func(ctx context.Context) (driver.Driver, error) {
			return driver.Open(ctx, &one)
		}})
	}
	slices.Sort(hosts)
	store = u.Scheme + ":" + strings.Join(hosts, ",") + strings.TrimRight(u.Path, "/")
	if len(query) > 0 {
		store += "?" + query.Encode()
	}
	return nodes, store, o, nil
}

// options returns the options of a URL's parameters.
func options(given map[string]string) (*Options, error) {
	o := &Options{}
	if text, ok := given["hf.maxttl"]; ok {
		var err error
		if o.MaxTTL, err = time.ParseDuration(text); err != nil || o.MaxTTL < minTTL {
			return nil, fmt.Errorf("URL parameter %q is %.40q: a time such as 30s is right, at least %v", "hf.maxttl", text, minTTL)
		}
	}
	switch text := given["hf.durable"]; {
	case text == "yes" && o.MaxTTL != 0:
		return nil, errors.New("URL has both hf.durable and hf.maxttl: durable nodes have no longest TTL")
	case text == "yes":
		o.Durable = true
	case text != "" && text != "no":
		return nil, fmt.Errorf("URL parameter %q is %.40q: yes or no is right", "hf.durable", text)
	}
	return o, nil
}
