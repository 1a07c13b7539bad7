// Package storeurl reads what store URLs have in common: the parameters that are the client's, not the
// driver's, and lists of hosts.
package storeurl

import (
	"fmt"
	"net/url"
	"time"
)

// Keys are the parameters that every store's URL may have.
var Keys = []string{"hf.prefix", "hf.ttl"}

// Params are the values of [Keys]; zero where the URL does not have one.
type Params struct {
	Prefix string        // holdfast.ClientOptions.Prefix, not checked
	TTL    time.Duration // holdfast.ClientOptions.TTL, positive
}

// Take returns the client's parameters, and the URL without them, for the driver. It does not
// change u. It returns an error if a parameter is given twice or is malformed.
func Take(u *url.URL) (Params, *url.URL, error) {
	var p Params
	rest, query := *u, u.Query()
	for _, key := range Keys {
		values, ok := query[key]
		switch {
		case !ok:
			continue
		case len(values) > 1:
			return p, nil, fmt.Errorf("URL parameter %q is given twice", key)
		case key == "hf.prefix":
			p.Prefix = values[0]
		default:
			ttl, err := time.ParseDuration(values[0])
			if err != nil || ttl <= 0 {
				return p, nil, fmt.Errorf("URL parameter %q is %.40q: a time such as 10s or 1m30s is right",
					key, values[0])
			}
			p.TTL = ttl
		}
		query.Del(key)
		rest.RawQuery = query.Encode()
	}
	return p, &rest, nil
}
