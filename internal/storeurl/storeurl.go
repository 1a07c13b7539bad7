// Package storeurl reads what store URLs have in common: the parameters that are the client's, not the
// driver's, and lists of hosts; and which hosts are this one.
package storeurl

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
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

// Max is the length of the longest store URL, in bytes.
const Max = 4096

// Parse parses a store URL. Unlike url.Parse it repeats nothing of the URL in an error, because
// a password that was not escaped may be anywhere in it. For the same reason it refuses an @ behind
// the host: the @ ends a password that contains a slash, a question mark or a hash, of which a part would
// be taken for what follows the host, which is shown.
func Parse(raw string) (*url.URL, error) {
	switch {
	case raw == "":
		return nil, errors.New("store URL is empty: it looks like scheme://host/…")
	case len(raw) > Max:
		return nil, fmt.Errorf("store URL has %d bytes: at most %d are allowed", len(raw), Max)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("store URL cannot be parsed (not shown, as it may hold a password): " +
			"it looks like scheme://user:password@host:port/path?hf.key=value, " +
			"with other characters in user and password %-escaped")
	}
	if u.Scheme == "" {
		return nil, errors.New("store URL has no scheme: it looks like scheme://host/…")
	}
	_, rest, _ := strings.Cut(raw, "//")
	if i := strings.IndexAny(rest, "/?#"); i > 0 && strings.Contains(rest[i:], "@") {
		return nil, errors.New("store URL has an @ behind the host: if it ends a password, " +
			"%-escape the password's special characters; else write %40")
	}
	if _, err := url.ParseQuery(u.RawQuery); err != nil {
		return nil, errors.New("store URL has a malformed query after the question mark")
	}
	return u, nil
}

// Redact returns the URL as it may be shown. It hides the password, a user without a password (it
// may be a password in the wrong place), and the values of all parameters but hf.* (they may be
// secrets). It hides a fragment, and what follows a scheme without "//": both mean nothing in a
// store URL and may be part of a password.
func Redact(u *url.URL) string {
	r := *u
	if r.Opaque != "" {
		r.Opaque = "xxxxx"
	}
	if r.Fragment != "" {
		r.Fragment, r.RawFragment = "xxxxx", ""
	}
	if _, ok := r.User.Password(); r.User != nil && !ok {
		r.User = url.User("xxxxx")
	}
	q := r.Query()
	for key, values := range q {
		if !strings.HasPrefix(key, "hf.") {
			for i := range values {
				values[i] = "xxxxx"
			}
		}
	}
	r.RawQuery = q.Encode()
	return r.Redacted()
}

// Query returns the URL's parameters, and an error if one is not among known or is given twice. If
// foreign is true, parameters that do not begin with "hf." belong to the client library: Query
// neither checks nor returns them.
func Query(u *url.URL, foreign bool, known []string) (map[string]string, error) {
	params := map[string]string{}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("store URL has a malformed query after the question mark")
	}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		ours := strings.HasPrefix(key, "hf.")
		switch {
		case !ours && foreign:
			continue
		case !slices.Contains(known, key):
			if slices.Contains(Keys, key) {
				return nil, fmt.Errorf("URL parameter %q is for the client, not for the driver: holdfast.Open takes it", key)
			}
			return nil, fmt.Errorf("unknown URL parameter %q for %s://; known are: %s",
				key, u.Scheme, strings.Join(slices.Concat(known, Keys), ", "))
		case len(query[key]) > 1:
			return nil, fmt.Errorf("URL parameter %q is given %d times; once is right",
				key, len(query[key]))
		}
		params[key] = query[key][0]
	}
	return params, nil
}

// MaxHosts is how many hosts a store URL may have.
const MaxHosts = 64

// Hosts reads the hosts of a store URL, separated by commas, and returns each as host:port. A host
// without a port has the one given; no host at all means localhost. Its errors do not repeat the text.
func Hosts(text, port string) ([]string, error) {
	if text == "" {
		text = "localhost"
	}
	list := strings.Split(text, ",")
	if len(list) > MaxHosts {
		return nil, fmt.Errorf("store URL has %d hosts: at most %d are allowed", len(list), MaxHosts)
	}
	for i, host := range list {
		name, its, err := net.SplitHostPort(host)
		if err != nil {
			name = strings.Trim(host, "[]")
		}
		if its == "" {
			its = port
		}
		if name == "" {
			return nil, fmt.Errorf("host %d of the store URL is empty", i+1)
		}
		list[i] = net.JoinHostPort(name, its)
	}
	return list, nil
}

// packages are this repository's, with the URL schemes of each, for those who have not imported it.
var packages = map[string][]string{
	"celllock":           {"cell", "cells"},
	"etcdlock":           {"etcd", "etcds"},
	"filelock":           {"file"},
	"memlock":            {"mem"},
	"redislock":          {"redis", "rediss", "redis+unix", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel", "redlock"},
	"sqllock/mysqlconn":  {"mariadb", "mysql"},
	"sqllock/pgconn":     {"postgres", "postgresql"},
	"sqllock/sqliteconn": {"sqlite"},
	"zklock":             {"zk", "zks"},
}

// Unknown is the error for a scheme that is not registered: it names the package that registers it, or else
// those that are registered.
func Unknown(scheme string, registered []string) error {
	for p, schemes := range packages {
		if slices.Contains(schemes, scheme) {
			return fmt.Errorf("the program has no driver for %s://: import _ %q", scheme, "github.com/holdfastlock/holdfast/"+p)
		}
	}
	have := "none: import a driver's package for its scheme"
	if len(registered) > 0 {
		have = strings.Join(registered, ", ")
	}
	return fmt.Errorf("no driver for URL scheme %q; registered are: %s", scheme, have)
}

// Loopback reports whether a host, with a port or without, is this one for everybody.
func Loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
