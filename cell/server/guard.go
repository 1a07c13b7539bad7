package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
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
	calls map[*guarded]bool
}

// guarded is a call that is under way.
type guarded struct {
	shown  shown
	who    *principal // as it was when the call came
	cancel context.CancelCauseFunc
}

// recheckEvery is how often the member looks whether files have changed and tokens have expired.
const recheckEvery = time.Second

// newGuard reads the file of principals for the first time.
func newGuard(c *Config) (*guard, error) {
	g := &guard{file: c.Principals, strict: c.knowsPrincipals(), log: c.Log, calls: map[*guarded]bool{}}
	g.known.Store(&principals{})
	return g, g.read()
}

// read reads the file, if it has changed.
func (g *guard) read() error {
	if g.file == "" {
		return nil
	}
	text, err := readPrincipals(g.file)
	if err != nil || g.text != nil && bytes.Equal(text, g.text) {
		return err
	}
	next, err := parsePrincipals(text, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", g.file, err)
	}
	for name, p := range next.byName { // whose limits stay has used them up as before
		if was := g.known.Load().byName[name]; was != nil && maps.Equal(was.limits, p.limits) {
			p.pace = was.pace
		}
	}
	g.known.Store(next)
	g.text = text
	g.log.Info("principals were read", "file", g.file, "principals", len(next.byName))
	return nil
}

// recheck takes in what has changed, and ends the calls that are not allowed any more. A file that cannot be
// read, as one that is just being written, changes nothing.
func (g *guard) recheck() {
	if err := g.read(); err != nil {
		g.log.Error("the principals stay as they were", "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.calls {
		if is := g.find(c.shown); is == nil || is.name != c.who.name {
			c.cancel(errUnknown)
		} else if !slices.Equal(is.grants, c.who.grants) {
			c.cancel(errRightsChanged)
		}
	}
}

// shown is what a caller has shown: a token, or a certificate.
type shown struct {
	token   tokenHash
	name    string    // of a certificate; "": a token was shown
	expires time.Time // of the certificate
}

var errUnknown = refuse(cellv1.Reason_REASON_UNKNOWN_CALLER,
	"a bearer token or a client certificate is needed that this cell knows and that has not expired")

// errRightsChanged ends a parked call: made again it is judged by the new rights.
var errRightsChanged = refuse(cellv1.Reason_REASON_UNCERTAIN, "the rights of the principal have changed: make the call again")

// identify finds out who makes a call.
func (g *guard) identify(r *http.Request) (c shown, who *principal, err error) {
	if !g.strict {
		return c, anybody, nil
	}
	header := r.Header.Values("Authorization")
	switch {
	case len(header) > 0: // a token that is wrong is not made good by a certificate
		scheme, text, _ := strings.Cut(header[0], " ")
		if len(header) > 1 || !strings.EqualFold(scheme, "Bearer") {
			return c, nil, errUnknown
		}
		c.token = sha256.Sum256([]byte(strings.TrimSpace(text)))
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		cert := r.TLS.PeerCertificates[0]
		c.name, c.expires = cert.Subject.CommonName, cert.NotAfter
		if len(cert.URIs) == 1 {
			c.name = cert.URIs[0].String()
		} else if len(cert.URIs) > 1 { // it names several
			return c, nil, errUnknown
		}
	}
	if who = g.find(c); who == nil {
		err = errUnknown
	}
	return c, who, err
}

// find returns whose a token or a certificate is that has not expired; nil: nobody's.
func (g *guard) find(c shown) *principal {
	t := token{g.named(c.name), c.expires}
	if c.name == "" {
		t = g.known.Load().tokens[c.token]
	}
	if !t.expires.After(time.Now()) {
		return nil
	}
	return t.of
}

// allRights are what principals may do that are in no file.
var allRights = []grant{{"", toAdminister}}

// anybody is who calls a cell that knows no principals.
var anybody = &principal{grants: allRights}

// named returns a principal; nil: it may make no calls.
func (g *guard) named(name string) *principal {
	switch {
	case !g.strict:
		return anybody
	case g.file != "":
		return g.known.Load().byName[name]
	case checkPrincipal(name) != nil:
		return nil
	}
	return &principal{name: name, grants: allRights}
}

// begin notes that a call is under way, until end is called. It ends when its caller is not admitted any more.
func (g *guard) begin(ctx context.Context, c shown, who *principal) (_ context.Context, end func()) {
	ctx = context.WithValue(ctx, callerKey{}, who)
	if !g.strict {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	call := &guarded{c, who, cancel}
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
