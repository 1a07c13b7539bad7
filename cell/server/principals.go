package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/driver"
)

// principalsFile is what the file of principals says, as JSON:
//
//	{"principals": [
//	  {"name": "billing",
//	   "tokens": [{"sha256": "…", "expires": "2027-01-31T00:00:00Z"}],
//	   "rights": [{"prefix": "billing", "right": "write"}],
//	   "limits": {"sessions": 100}}
//	]}
//
// A principal without tokens is one that a client certificate names. Each member reads a file of its own, and
// reads it again when it has changed.
type principalsFile struct {
	Principals []principal `json:"principals"`
}

// principal is somebody who may make calls.
type principal struct {
	Name   string   `json:"name"`
	Tokens []bearer `json:"tokens"`
	Rights []grant  `json:"rights"`
	Limits limits   `json:"limits"` // nil: none
	pace   *pace    // nil: no limit
}

// bearer is what the file of principals says of a token.
type bearer struct {
	SHA256  string    `json:"sha256"` // of the token, in hexadecimal digits
	Expires time.Time `json:"expires"`
}

// grant is what a principal may do with a name and all names below it.
type grant struct {
	Prefix string `json:"prefix"` // "": all names
	Right  right  `json:"right"`
}

// covers reports whether a grant is of a name: of its prefix itself, or of what is below it.
func (g grant) covers(name string) bool {
	rest, ok := strings.CutPrefix(name, g.Prefix)
	return ok && (g.Prefix == "" || rest == "" || rest[0] == '/')
}

// may reports whether a principal has a right to a name.
func (p *principal) may(name string, r right) bool {
	return slices.ContainsFunc(p.Rights, func(g grant) bool { return g.Right >= r && g.covers(name) })
}

// administers reports whether a principal may do everything with all names, and so with the cell.
func (p *principal) administers() bool { return p.may("", toAdminister) }

// caller is a way to call for a principal: by a token, or by a certificate.
type caller struct {
	*principal
	expires time.Time       // of the token
	life    context.Context // until this caller is not admitted any more, or its rights change
	end     context.CancelCauseFunc
}

// callers are those of a file, by the SHA-256 of a token in hexadecimal digits, or by a slash and the name of a certificate.
type callers map[string]*caller

func (all callers) add(key string, p *principal, expires time.Time) error {
	if all[key] != nil {
		return errors.New("it, or its token, is there twice")
	}
	life, end := context.WithCancelCause(context.Background())
	all[key] = &caller{p, expires, life, end}
	return nil
}

// Bounds of the file of principals.
const (
	maxPrincipalName = 256 // bytes
	tokensAtOnce     = 2   // of a principal, that have not expired
)

// readPrincipals returns the text of a file of principals.
func readPrincipals(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s: other users may write it (%v): run chmod go-w %s", file, info.Mode().Perm(), file)
	}
	return os.ReadFile(file)
}

// parsePrincipals reads the text of a file of principals.
func parsePrincipals(text []byte, now time.Time) (callers, error) {
	var file principalsFile
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // a right that is misspelt must not be passed over
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the principals")
	}
	all := callers{}
	for i := range file.Principals {
		p := &file.Principals[i]
		if err := all.addPrincipal(p, now); err != nil {
			return nil, fmt.Errorf("principal %.80q: %w", p.Name, err)
		}
	}
	return all, nil
}

func (all callers) addPrincipal(p *principal, now time.Time) error {
	if p.Limits == nil {
		p.Limits = limits{}
	}
	if err := cmp.Or(checkPrincipal(p.Name), p.Limits.complete(), all.add("/"+p.Name, p, time.Time{})); err != nil {
		return err
	}
	for _, g := range p.Rights {
		if err := driver.CheckName(g.Prefix); err != nil && g.Prefix != "" {
			return fmt.Errorf("prefix: %w", err)
		}
	}
	p.pace = newPace(p.Limits)
	valid := 0
	for _, t := range p.Tokens {
		sum, err := hex.DecodeString(t.SHA256)
		switch {
		case err != nil || len(sum) != sha256.Size:
			return errors.New("sha256: the 64 hexadecimal digits of the token's SHA-256 are wanted")
		case t.Expires.IsZero():
			return errors.New("expires is missing: a time such as 2027-01-31T00:00:00Z is wanted")
		}
		if t.Expires.After(now) {
			valid++
		}
		if err := all.add(hex.EncodeToString(sum), p, t.Expires); err != nil {
			return err
		}
	}
	if valid > tokensAtOnce {
		return fmt.Errorf("%d tokens are valid: at most %d may be, the old one and the new one", valid, tokensAtOnce)
	}
	return nil
}

// checkPrincipal checks the name of a principal. It stands on a line of its own in the lists of ACLs.
func checkPrincipal(name string) error {
	switch {
	case name == "" || len(name) > maxPrincipalName:
		return fmt.Errorf("its name has %d bytes: between 1 and %d are right", len(name), maxPrincipalName)
	case !utf8.ValidString(name) || strings.TrimSpace(name) != name || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("its name must be text without space at its ends")
	}
	return nil
}

// rights by their names, in the order in which each has all that the one before has.
var rightNames = []string{toRead: "read", toWrite: "write", toAdminister: "admin"}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *right) UnmarshalText(text []byte) error {
	i := slices.Index(rightNames, string(text))
	if i < 0 {
		return fmt.Errorf("right %.20q is unknown: read, write and admin are right", text)
	}
	*r = right(i)
	return nil
}

// callerKey is where the context of a call has its caller.
type callerKey struct{}

// callerOf returns who makes a call. Nobody may do anything.
func callerOf(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{principal: &principal{}}
}

// principalOf returns the name of who makes a call; "" if the cell knows no principals.
func principalOf(ctx context.Context) string { return callerOf(ctx).Name }

// right is what one wants to do with a name. Each includes those before it.
type right uint8

const (
	toRead       right = iota
	toWrite            // lock it, write its contents
	toAdminister       // break others' holds, say who may do what
)

var errNotYours = refuse(cellv1.Reason_REASON_NOT_YOURS, "the session's secret is wrong, or it is another principal's")

// allowedLocked returns an error unless the caller may do something with a name.
func (f *front) allowedLocked(ctx context.Context, name string, r right) error {
	if !f.mirror.mayLocked(callerOf(ctx), name, r) {
		return refuse(cellv1.Reason_REASON_FORBIDDEN, "the principal has no right to %s %.80q", rightNames[r], name)
	}
	return nil
}

// mayLocked reports whether a principal may do something with a name: by the list of principals, and by the
// ACL of the nearest node. Who administers the cell needs no ACL: else a list that is lost would lock
// everybody out.
func (m *mirror) mayLocked(p *caller, name string, r right) bool {
	needs := r
	if isList(name) && r == toWrite {
		needs = toAdminister // who may write lists, may do what they say
	}
	if p == nil || !p.may(name, needs) {
		return false
	}
	if p.administers() {
		return true
	}
	list := m.aclLocked(name).list(r) // "" lets everybody, and one that is not there nobody
	n := m.nodeLocked(listsAt + list)
	return list == "" || n != nil && n.list[p.Name]
}

// listsAt is what the paths of lists begin with: a node below it names principals, one on each line.
const listsAt = "acl/"

// isList reports whether a path is that of a list, or above all of them.
func isList(path string) bool { return path+"/" == listsAt || strings.HasPrefix(path, listsAt) }

// listOf returns the principals that the contents of a node name, if it is a list.
func listOf(path string, contents []byte) map[string]bool {
	if !strings.HasPrefix(path, listsAt) {
		return nil
	}
	list := map[string]bool{}
	for line := range strings.Lines(string(contents)) {
		if line = strings.TrimSpace(line); line != "" {
			list[line] = true
		}
	}
	return list
}

// aclLocked returns who may do what with a path: what its node says, or that of the nearest one above.
// The zero value, where there is none, narrows nothing.
func (m *mirror) aclLocked(path string) acl {
	for path != "" {
		if n := m.nodeLocked(path); n != nil {
			return n.acl
		}
		path = parentOf(path)
	}
	return acl{}
}

// guard knows who calls: by a bearer token, or else by the certificate of the connection. Without a file of
// principals everybody is admitted whom the authority of client certificates knows, and may do everything; and
// without an authority everybody is.
type guard struct {
	file   string // of principals; "": none
	strict bool   // somebody must be known
	log    *slog.Logger
	text   []byte // of the file, as it was taken in last
	known  atomic.Pointer[callers]
}

// recheckEvery is how often the member looks whether files have changed.
const recheckEvery = time.Second

// newGuard reads the file of principals for the first time.
func newGuard(c *Config) (*guard, error) {
	g := &guard{file: c.Principals, strict: c.knowsPrincipals(), log: c.Log}
	g.known.Store(&callers{})
	return g, g.read()
}

// read reads the file, if it has changed, and ends the calls that are not allowed any more.
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
	for key, was := range *g.known.Load() {
		is := next[key]
		if is == nil || is.Name != was.Name {
			defer was.end(errUnknown) // when the next ones are known
			continue
		}
		if maps.Equal(is.Limits, was.Limits) { // they are used up as before
			is.pace = was.pace
		}
		if slices.Equal(is.Rights, was.Rights) && is.expires.Equal(was.expires) {
			is.life, is.end = was.life, was.end
		} else {
			defer was.end(errRightsChanged)
		}
	}
	g.known.Store(&next)
	g.text = text
	g.log.Info("principals were read", "file", g.file, "callers", len(next))
	return nil
}

var errUnknown = refuse(cellv1.Reason_REASON_UNKNOWN_CALLER,
	"a bearer token or a client certificate is needed that this cell knows and that has not expired")

// errRightsChanged ends a parked call: made again it is judged by the new rights.
var errRightsChanged = refuse(cellv1.Reason_REASON_UNCERTAIN, "the rights of the principal have changed: make the call again")

// identify finds out who makes a call, and until when this one may.
func (g *guard) identify(r *http.Request) (c *caller, expires time.Time, err error) {
	switch header := r.Header.Values("Authorization"); {
	case !g.strict:
		return anybody, expires, nil
	case len(header) > 0: // a token that is wrong is not made good by a certificate
		scheme, text, _ := strings.Cut(header[0], " ")
		sum := sha256.Sum256([]byte(strings.TrimSpace(text)))
		if c = (*g.known.Load())[hex.EncodeToString(sum[:])]; c != nil && len(header) == 1 && strings.EqualFold(scheme, "Bearer") {
			expires = c.expires
		}
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		cert := r.TLS.PeerCertificates[0]
		name := cert.Subject.CommonName
		if len(cert.URIs) > 0 {
			name = cert.URIs[0].String()
		}
		if c = g.named(name); len(cert.URIs) <= 1 { // else it names several
			expires = cert.NotAfter
		}
	}
	if c == nil || !expires.After(time.Now()) {
		return nil, expires, errUnknown
	}
	return c, expires, nil
}

// allRights are what principals may do that are in no file.
var allRights = []grant{{"", toAdminister}}

// anybody is who calls a cell that knows no principals.
var anybody = &caller{principal: &principal{Rights: allRights}}

// named returns a principal as the one whom a certificate names; nil: it may make no calls.
func (g *guard) named(name string) *caller {
	switch {
	case !g.strict:
		return anybody
	case g.file != "":
		return (*g.known.Load())["/"+name]
	case checkPrincipal(name) != nil:
		return nil
	}
	return &caller{principal: &principal{Name: name, Rights: allRights}, life: context.Background()}
}

// begin returns the context of a call, until end is called. The call ends when its caller is not admitted any more.
func begin(ctx context.Context, c *caller, expires time.Time) (_ context.Context, end func()) {
	ctx = context.WithValue(ctx, callerKey{}, c)
	if c == anybody {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, stop := context.WithDeadlineCause(ctx, expires, errUnknown)
	forget := context.AfterFunc(c.life, func() { cancel(context.Cause(c.life)) })
	return ctx, func() {
		forget()
		stop()
		cancel(nil)
	}
}
