package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// Opener opens a driver for a URL of its scheme. It MUST refuse parameters that it does not know:
// see [Params]. Its errors MUST NOT show a password: they may show the URL as [Redact] returns it.
type Opener func(ctx context.Context, u *url.URL) (Driver, error)

var openers struct {
	sync.RWMutex
	m map[string]Opener
}

// Register makes a URL scheme known. Call it in an init function. It panics if the scheme is
// registered already. Safe for concurrent use.
func Register(scheme string, open Opener) {
	openers.Lock()
	defer openers.Unlock()
	if _, dup := openers.m[scheme]; dup || scheme == "" || open == nil {
		panic(fmt.Sprintf("driver: Register(%q): empty or registered twice", scheme))
	}
	if openers.m == nil {
		openers.m = map[string]Opener{}
	}
	openers.m[scheme] = open
}

// Schemes returns the registered URL schemes, sorted.
func Schemes() []string {
	openers.RLock()
	defer openers.RUnlock()
	return slices.Sorted(maps.Keys(openers.m))
}

// Open opens the driver that is registered for the URL's scheme. If none is, and the scheme is that of a
// package of this repository, the error names the package to import. If the store does not answer in
// time, the error says which host did not, and for how long.
func Open(ctx context.Context, u *url.URL) (Driver, error) {
	openers.RLock()
	open, ok := openers.m[u.Scheme]
	openers.RUnlock()
	if !ok {
		return nil, unknownScheme(u.Scheme)
	}
	begun := time.Now()
	d, err := open(ctx, u)
	var slow interface{ Timeout() bool } // as a net.Error
	if u.Host != "" && errors.As(err, &slow) && slow.Timeout() {
		err = fmt.Errorf("no answer from %s within %v: %w", u.Host, time.Since(begun).Round(100*time.Millisecond), err)
	}
	return d, err
}

// packages has the package of each URL scheme, for those who have not imported it.
var packages = map[string]string{
	"cell":            "celllock",
	"cells":           "celllock",
	"etcd":            "etcdlock",
	"etcds":           "etcdlock",
	"file":            "filelock",
	"mariadb":         "sqllock/mysqlconn",
	"mem":             "memlock",
	"mysql":           "sqllock/mysqlconn",
	"postgres":        "sqllock/pgconn",
	"postgresql":      "sqllock/pgconn",
	"redis":           "redislock",
	"redis+unix":      "redislock",
	"rediss":          "redislock",
	"redis+cluster":   "redislock",
	"rediss+cluster":  "redislock",
	"redis+sentinel":  "redislock",
	"rediss+sentinel": "redislock",
	"redlock":         "redislock",
	"sqlite":          "sqllock/sqliteconn",
	"zk":              "zklock",
	"zks":             "zklock",
}

// unknownScheme says which package registers a scheme, or else which schemes there are.
func unknownScheme(scheme string) error {
	if p, ok := packages[scheme]; ok {
		return fmt.Errorf("the program has no driver for %s://: import _ %q", scheme, "github.com/holdfastlock/holdfast/"+p)
	}
	have := "none: import a driver's package for its scheme"
	if s := Schemes(); len(s) > 0 {
		have = strings.Join(s, ", ")
	}
	return fmt.Errorf("no driver for URL scheme %q; registered are: %s", scheme, have)
}

// MaxURL is the length of the longest store URL, in bytes.
const MaxURL = 4096

// ParseURL parses a store URL. Unlike url.Parse it repeats nothing of the URL in an error, because
// a password that was not escaped may be anywhere in it. For the same reason it refuses an @ behind
// the host: the @ ends a password that contains a slash, a question mark or a hash, of which a part would
// be taken for what follows the host, which is shown.
func ParseURL(raw string) (*url.URL, error) {
	switch {
	case raw == "":
		return nil, errors.New("store URL is empty: it looks like scheme://host/…")
	case len(raw) > MaxURL:
		return nil, fmt.Errorf("store URL has %d bytes: at most %d are allowed", len(raw), MaxURL)
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

// Params returns the URL's parameters, and an error if one is not among known or is given twice. If
// foreign is true, parameters that do not begin with "hf." belong to the client library: Params
// neither checks nor returns them.
func Params(u *url.URL, foreign bool, known ...string) (map[string]string, error) {
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
			if slices.Contains(storeurl.Keys, key) {
				return nil, fmt.Errorf("URL parameter %q is for the client, not for the driver: holdfast.Open takes it", key)
			}
			return nil, fmt.Errorf("unknown URL parameter %q for %s://; known are: %s",
				key, u.Scheme, strings.Join(slices.Concat(known, storeurl.Keys), ", "))
		case len(query[key]) > 1:
			return nil, fmt.Errorf("URL parameter %q is given %d times; once is right",
				key, len(query[key]))
		}
		params[key] = query[key][0]
	}
	return params, nil
}
