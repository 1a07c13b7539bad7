package server

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
)

// lane says how a call is admitted.
type lane uint8

const (
	open     lane = iota + 1 // without asking who calls
	unpaced                  // as often as one likes
	ordinary                 // as often as the principal may
	renewal                  // the same, but other calls take nothing from it
)

// lanes are the paths that are not ordinary. What a principal may do with which name the calls themselves ask: a test
// fails for a call that is new until somebody has thought about it.
var lanes = map[string]lane{
	cellv1connect.SessionsKeepAliveProcedure: renewal,
	cellv1connect.SessionsCloseProcedure:     renewal,
	cellv1connect.LocksReleaseProcedure:      renewal,
	cellv1connect.LocksDowngradeProcedure:    renewal,

	"/metrics": unpaced,
	"/healthz": open,
	"/readyz":  open,
}

// sequencerHeader is the header of a call that is to be done only while a lock is held.
const sequencerHeader = "Holdfast-Sequencer"

// gate is what every request comes through.
type gate struct {
	front  *front
	guard  *guard
	next   http.Handler
	errors *connect.ErrorWriter
	local  bool // everybody is admitted, because nobody comes from another host
	slow   time.Duration
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := newHurried(w, r, g.slow)
	l := cmp.Or(lanes[r.URL.Path], ordinary)
	switch {
	case g.local && !namesLoopback(r.Host):
		// A browser on this host may show a page of evil.example, which has just become a name of this
		// host. Without this check the page could call.
		http.Error(out, "the member is asked by a name that is not of this host", http.StatusMisdirectedRequest)
		return
	case l == open:
		g.next.ServeHTTP(out, r)
		return
	}
	ctx, end, err := g.admit(r, l)
	if err != nil {
		g.refuse(out, r, err)
		return
	}
	defer end()
	g.next.ServeHTTP(out, r.WithContext(ctx))
}

// admit lets a call in, or says why not.
func (g *gate) admit(r *http.Request, l lane) (context.Context, func(), error) {
	who, err := g.guard.identify(r)
	if err != nil {
		g.guard.log.Debug("a caller is not known", "from", r.RemoteAddr, "call", r.URL.Path)
		return nil, nil, err
	}
	endPace, err := who.of.pace.begin(l)
	if err != nil {
		return nil, nil, err
	}
	ctx, endCall := g.guard.begin(r.Context(), who)
	end := func() { endCall(); endPace() }
	if text := r.Header.Get(sequencerHeader); text != "" {
		f, err := g.front.checkSequencer(ctx, text)
		if err != nil {
			end()
			return nil, nil, err
		}
		ctx = context.WithValue(ctx, fenceKey{}, f)
	}
	return ctx, end, nil
}

// refuse answers in the protocol that the caller speaks.
func (g *gate) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if g.errors.IsSupported(r) {
		g.errors.Write(w, r, err)
		return
	}
	status := http.StatusUnauthorized
	if connect.CodeOf(err) == connect.CodeResourceExhausted {
		status = http.StatusTooManyRequests
	}
	http.Error(w, err.Error(), status)
}

// namesLoopback reports whether the host that a request is for is this one for everybody.
func namesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return loopback(strings.Trim(host, "[]"))
}

// hurried is the writer of an answer that a client must take in: else the connection, or the call, is cut.
type hurried struct {
	http.ResponseWriter
	control *http.ResponseController
	within  time.Duration
	begun   time.Time // when the deadline was last set
}

func newHurried(w http.ResponseWriter, r *http.Request, within time.Duration) *hurried {
	u := &hurried{ResponseWriter: w, control: http.NewResponseController(w), within: within}
	if r.ProtoMajor == 1 {
		u.control.SetWriteDeadline(time.Time{}) // that of the answer before
	}
	return u
}

// Write implements http.ResponseWriter.
func (u *hurried) Write(p []byte) (int, error) {
	u.hurry()
	return u.ResponseWriter.Write(p)
}

// hurry sets the deadline for what is written now, unless it was set a moment ago: with HTTP/2 that wakes the connection.
func (u *hurried) hurry() {
	if now := time.Now(); now.Sub(u.begun) >= u.within/10 {
		u.begun = now
		u.control.SetWriteDeadline(now.Add(u.within))
	}
}

// Flush implements http.Flusher.
func (u *hurried) Flush() { u.control.Flush() }

// Unwrap is for http.ResponseController.
func (u *hurried) Unwrap() http.ResponseWriter { return u.ResponseWriter }
