package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// guard knows who calls: by a bearer token, or else by the certificate of the connection. Without a file of
// principals everybody is admitted whom the authority of client certificates knows, and may do everything; and
// without an authority everybody is.
type guard struct {
	file   string // of principals; "": none
	strict bool   // somebody must be known
	log    *slog.Logger
	known  atomic.Pointer[principals]

	mu    sync.Mutex
	text  []byte // of the file, as it was taken in last
	paces map[string]*pace
	calls map[*guarded]bool
}

// recheckEvery is how often the member looks whether files have changed and tokens have expired.
const recheckEvery = time.Second

// newGuard reads the file of principals for the first time.
func newGuard(c *Config) (*guard, error) {
	g := &guard{
		file: c.Principals, strict: c.knowsPrincipals(), log: c.Log, paces: map[string]*pace{}, calls: map[*guarded]bool{},
	}
	return g, g.read()
}

// read reads the file, if it has changed.
func (g *guard) read() error {
	if g.file == "" {
		return nil
	}
	text, err := readPrincipals(g.file)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.known.Load() != nil && bytes.Equal(text, g.text) {
		return nil
	}
	next, err := parsePrincipals(text, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", g.file, err)
	}
	for name, p := range next.byName {
		if g.paces[name] == nil {
			g.paces[name] = newPace(p.limits)
		}
		p.pace = g.paces[name]
		p.pace.set(p.limits) // of one that was there before
	}
	if g.known.Swap(next) != nil {
		g.log.Info("principals were read anew", "file", g.file, "principals", len(next.byName))
	}
	g.text = text
	return nil
}

// recheck takes in what has changed, and ends the calls that are not allowed any more. A file that cannot be
// read changes nothing: suppose that it is just being written.
func (g *guard) recheck() {
	if err := g.read(); err != nil {
		g.log.Error("the principals stay as they were", "error", err)
	}
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.calls {
		if err := g.check(&c.shown, now); err != nil {
			delete(g.calls, c)
			c.cancel(err)
		}
	}
}

// shown is what a caller has shown.
type shown struct {
	of      *principal // as it was then
	token   tokenHash
	bearer  bool      // it was a token
	expires time.Time // zero: never
}

var errUnknown = refuse(cellv1.Reason_REASON_UNKNOWN_CALLER,
	"a bearer token or a client certificate is needed that this cell knows and that has not expired")

// errRightsChanged ends a parked call: made again it is judged by the new rights.
var errRightsChanged = refuse(cellv1.Reason_REASON_UNCERTAIN, "the rights of the principal have changed: make the call again")

// identify finds out who makes a call.
func (g *guard) identify(r *http.Request) (shown, error) {
	if !g.strict {
		return shown{of: anybody}, nil
	}
	var c shown
	header := r.Header.Values("Authorization")
	switch {
	case len(header) > 0: // a token that is wrong is not made good by a certificate
		scheme, text, _ := strings.Cut(header[0], " ")
		if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return c, errUnknown
		}
		c.token, c.bearer = sha256.Sum256([]byte(strings.TrimSpace(text))), true
		if known := g.known.Load(); known != nil {
			t := known.tokens[c.token]
			c.of, c.expires = t.of, t.expires
		}
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		cert := r.TLS.PeerCertificates[0]
		c.of, c.expires = g.named(subjectOf(cert)), cert.NotAfter
	}
	if c.of == nil || !c.expires.After(time.Now()) {
		return c, errUnknown
	}
	return c, nil
}

// subjectOf returns the principal that a certificate names: its only URI, or the common name of its subject if
// it has no URI; "" if it names nobody, or several.
func subjectOf(c *x509.Certificate) string {
	switch len(c.URIs) {
	case 0:
		return c.Subject.CommonName
	case 1:
		return c.URIs[0].String()
	}
	return ""
}

// allRights are what principals may do that are in no file.
var allRights = []grant{{"", toAdminister}}

// anybody is who calls a cell that knows no principals.
var anybody = &principal{grants: allRights}

// named returns a principal; nil: it may make no calls.
func (g *guard) named(name string) *principal {
	known := g.known.Load()
	switch {
	case !g.strict:
		return anybody
	case known != nil:
		return known.byName[name]
	case checkPrincipal(name) != nil:
		return nil
	}
	return &principal{name: name, grants: allRights}
}

// check says why a call may not go on.
func (g *guard) check(c *shown, now time.Time) error {
	if !c.expires.IsZero() && !c.expires.After(now) {
		return errUnknown
	}
	is := g.named(c.of.name)
	if c.bearer {
		is = g.known.Load().tokens[c.token].of
	}
	switch {
	case is == nil || is.name != c.of.name:
		return errUnknown
	case !slices.Equal(is.grants, c.of.grants):
		return errRightsChanged
	}
	return nil
}

// guarded is a call that is under way.
type guarded struct {
	shown
	cancel context.CancelCauseFunc
}

// begin notes that a call is under way, until end is called. It ends when its caller is not admitted any more.
func (g *guard) begin(ctx context.Context, c shown) (_ context.Context, end func()) {
	ctx = context.WithValue(ctx, callerKey{}, c.of)
	if !g.strict {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	call := &guarded{c, cancel}
	g.mu.Lock()
	g.calls[call] = true
	g.mu.Unlock()
	return ctx, func() {
		g.mu.Lock()
		delete(g.calls, call)
		g.mu.Unlock()
		cancel(nil)
	}
}
