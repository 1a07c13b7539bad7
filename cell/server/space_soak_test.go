//go:build soak

package server

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestNoSpace: while there is too little space nobody gets anything new, and what is there goes on.
func TestNoSpace(t *testing.T) {
	m := start(t)
	a := dial(m)
	one := a.open(t, 10*time.Second)
	a.take(t, one, "held", nil)
	a.mustWrite(t, "file", "x")
	m.reserve.Store(math.MaxInt64)
	if m.shortage() == "" {
		t.Fatal("no disk has so much space")
	}
	for what, err := range map[string]error{
		"a session": func() error {
			_, err := a.Open(t.Context(), &cellv1.OpenRequest{})
			return err
		}(),
		"a hold": func() error { _, err := a.acquire(t, one, "other", nil); return err }(),
		"a place": func() error {
			_, err := a.acquire(t, one, "held", func(r *cellv1.AcquireRequest) { r.Request, r.Queue = "second", true })
			return err
		}(),
		"a file": func() error { _, err := a.write(t, "file", "y", nil); return err }(),
	} {
		if reasonOf(err) != cellv1.Reason_REASON_REFUSED || !strings.Contains(err.Error(), "make room") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: one, Now: true}); err != nil {
		t.Errorf("a session is kept: %v", err)
	}
	if got := metric(t, m, "holdfast_cell_refuses_new"); got != "1" {
		t.Errorf("the metrics say %q", got)
	}
	if got := a.release(t, one, &cellv1.Release{Name: "held"}); got != cellv1.Reason_REASON_UNSPECIFIED {
		t.Errorf("a hold is released: %v", got)
	}
	m.reserve.Store(1)
	a.take(t, one, "other", nil)
}

// metric returns the value of a series; "": there is none.
func metric(t *testing.T, m *Member, series string) string {
	t.Helper()
	_, text := get(t, m, "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// TestMetrics: calls are counted by what became of them, and what clients choose is no label.
func TestMetrics(t *testing.T) {
	m := start(t)
	a := dial(m)
	one, two := a.open(t, 10*time.Minute), a.open(t, 10*time.Minute)
	a.take(t, one, "secret/name", nil)
	if _, err := a.acquire(t, two, "secret/name", nil); err == nil {
		t.Error("P1: a held name")
	}
	for series, want := range map[string]string{
		`holdfast_cell_calls_total{call="Sessions/Open",reason="ok"}`:   "2",
		`holdfast_cell_calls_total{call="Locks/Acquire",reason="ok"}`:   "1",
		`holdfast_cell_calls_total{call="Locks/Acquire",reason="held"}`: "1",
		`holdfast_cell_call_seconds_count{call="Locks/Acquire"}`:        "2",
		"holdfast_cell_sessions": "2", "holdfast_cell_locks": "1", "holdfast_cell_leads": "1", "holdfast_cell_has_leader": "1",
		"holdfast_cell_refuses_new": "0",
	} {
		if got := metric(t, m, series); got != want {
			t.Errorf("%s is %q, want %s", series, got, want)
		}
	}
	if _, text := get(t, m, "/metrics"); strings.Contains(text, "secret") || !strings.Contains(text, "etcd_disk_wal_fsync_duration_seconds") {
		t.Error("a name is a label, or etcd's metrics are missing")
	}
}

// TestHealth: a member that is about to stop is not ready, and lives.
func TestHealth(t *testing.T) {
	m := start(t)
	for _, page := range []string{"/healthz", "/readyz"} {
		if code, text := get(t, m, page); code != http.StatusOK || text != "ok\n" {
			t.Errorf("%s: %d %s", page, code, text)
		}
	}
	m.handOver()
	if code, text := get(t, m, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "stop") {
		t.Errorf("/readyz: %d %s", code, text)
	}
	if code, _ := get(t, m, "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
}
