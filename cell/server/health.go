package server

import (
	"io"
	"net/http"
)

// healthz answers 200 as long as the member works at all: one that does not is to be started again.
func (m *Member) healthz(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-m.etcd.Server.StopNotify():
		http.Error(w, "etcd has stopped", http.StatusServiceUnavailable)
	default:
		io.WriteString(w, "ok\n")
	}
}

// readyz answers 200 if clients are well served here: the member is not about to stop, and belongs to a
// majority.
func (m *Member) readyz(w http.ResponseWriter, _ *http.Request) {
	switch {
	case m.stopping.Load():
		http.Error(w, "the member is about to stop", http.StatusServiceUnavailable)
	case m.etcd.Server.Leader() == 0:
		http.Error(w, "the member knows no leader: a majority of the members must run", http.StatusServiceUnavailable)
	default:
		io.WriteString(w, "ok\n")
	}
}
