package server

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
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
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := lanes[r.URL.Path]
	switch {
	case g.local && !namesLoopback(r.Host):
		// A browser on this host may show a page of evil.example, which has just become a name of this
		// host. Without this check the page could call.
		http.Error(w, "the member is asked by a name that is not of this host", http.StatusMisdirectedRequest)
		return
	case l == open:
		g.next.ServeHTTP(w, r)
		return
	}
	if err := g.admit(w, r, l); err == nil {
		return
	} else if g.errors.IsSupported(r) { // in the protocol that the caller speaks
		g.errors.Write(w, r, err)
	} else {
		http.Error(w, err.Error(), http.StatusUnauthorized)
	}
}

// admit makes a call, or says why it must not be made.
func (g *gate) admit(w http.ResponseWriter, r *http.Request, l lane) error {
	shown, who, err := g.guard.identify(r)
	if err != nil {
		g.guard.log.Debug("a caller is not known", "from", r.RemoteAddr, "call", r.URL.Path)
		return err
	}
	if err := who.admits(l); err != nil {
		return err
	}
	ctx, end := g.guard.begin(r.Context(), shown, who)
	defer end()
	if text := r.Header.Get(sequencerHeader); text != "" {
		f, err := g.front.checkSequencer(ctx, text)
		if err != nil {
			return err
		}
		ctx = context.WithValue(ctx, fenceKey{}, f)
	}
	if r.URL.Path == cellv1connect.CellBackupProcedure { // it takes as long as it takes
		http.NewResponseController(w).SetWriteDeadline(time.Time{})
	}
	g.next.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// namesLoopback reports whether the host that a request is for is this one for everybody.
func namesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return loopback(strings.Trim(host, "[]"))
}
