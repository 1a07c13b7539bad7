package driver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// Opener opens a driver for a URL of its scheme. It MUST refuse parameters that it does not know: see [Params].
// Its errors MUST NOT show a password: they may show the URL as [Redact] returns it.
type Opener func(ctx context.Context, u *url.URL) (Driver, error)

var openers struct {
	sync.RWMutex
	m map[string]Opener
}

// Register makes a URL scheme known. Call it in an init function. It panics if the scheme is registered
// already. Safe for concurrent use.
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
// package of this repository, the error names the package to import. If the store does not answer in time, the
// error says which host did not, and for how long.
func Open(ctx context.Context, u *url.URL) (Driver, error) {
	openers.RLock()
	open, ok := openers.m[u.Scheme]
	openers.RUnlock()
	if !ok {
		return nil, storeurl.Unknown(u.Scheme, Schemes())
	}
	begun := time.Now()
	d, err := open(ctx, u)
	var slow interface{ Timeout() bool } // as a net.Error
	if u.Host != "" && errors.As(err, &slow) && slow.Timeout() {
		err = fmt.Errorf("no answer from %s within %v: %w", u.Host, time.Since(begun).Round(100*time.Millisecond), err)
	}
	return d, err
}

// ParseURL parses a store URL. Unlike url.Parse it repeats nothing of the URL in an error, because a password
// that was not escaped may be anywhere in it.
func ParseURL(raw string) (*url.URL, error) { return storeurl.Parse(raw) }

// Redact returns the URL as it may be shown: without what is, or may be, a password or another secret.
func Redact(u *url.URL) string { return storeurl.Redact(u) }

// Params returns the URL's parameters, and an error if one is not among known or is given twice. If foreign is
// true, parameters that do not begin with "hf." belong to the client library: Params neither checks nor returns
// them.
func Params(u *url.URL, foreign bool, known ...string) (map[string]string, error) {
	return storeurl.Query(u, foreign, known)
}
