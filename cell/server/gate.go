package server

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
)

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
	l := lanes[r.URL.Path]
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
	call, end, err := g.admit(r, l)
	if err == nil {
		defer end()
		g.next.ServeHTTP(out, call)
	} else if g.errors.IsSupported(r) { // in the protocol that the caller speaks
		g.errors.Write(out, r, err)
	} else {
		http.Error(out, err.Error(), http.StatusUnauthorized)
	}
}

// admit returns a call as it may be made, until end is called, or says why it must not be made.
func (g *gate) admit(r *http.Request, l lane) (call *http.Request, end func(), err error) {
	shown, who, err := g.guard.identify(r)
	if err != nil {
		g.guard.log.Debug("a caller is not known", "from", r.RemoteAddr, "call", r.URL.Path)
		return nil, nil, err
	}
	if err := who.admits(l); err != nil {
		return nil, nil, err
	}
	ctx, end := g.guard.begin(r.Context(), shown, who)
	if text := r.Header.Get(sequencerHeader); text != "" {
		f, err := g.front.checkSequencer(ctx, text)
		if err != nil {
			end()
			return nil, nil, err
		}
		ctx = context.WithValue(ctx, fenceKey{}, f)
	}
	return r.WithContext(ctx), end, nil
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

// Write sets the deadline, unless that was done a moment ago: with HTTP/2 it wakes the connection.
func (u *hurried) Write(p []byte) (int, error) {
	if now := time.Now(); now.Sub(u.begun) >= u.within/10 {
		u.begun = now
		u.control.SetWriteDeadline(now.Add(u.within))
	}
	return u.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController, and Flush for those who do not know of it.
func (u *hurried) Unwrap() http.ResponseWriter { return u.ResponseWriter }
func (u *hurried) Flush()                      { u.control.Flush() }
