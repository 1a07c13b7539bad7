package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestMain lets the test program be the processes of the demonstration too.
func TestMain(m *testing.M) {
	if IsChild() {
		os.Exit(Child())
	}
	// With the race detector each process would wait a second before it ends.
	os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=10")
	os.Exit(m.Run())
}

// ownTempDir gives the test a temporary directory of its own, and fails if the test leaves files there.
func ownTempDir(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	})
}

// demonstrated returns the results of a demonstration, and its progress.
func demonstrated[R any](t *testing.T, show func(context.Context, Options) error, store string, ticks int) (results []R, progress string) {
	t.Helper()
	var out, lines bytes.Buffer
	testserver.Must(t, show(t.Context(), Options{Store: store, JSON: true, Out: &out, Progress: &lines, Ticks: ticks}))
	exact := json.NewDecoder(&out)
	exact.DisallowUnknownFields()
	testserver.Must(t, exact.Decode(&results))
	t.Logf("%+v", results)
	return results, lines.String()
}

// TestSale: the lock and its token have sold the stock exactly, and the pause has oversold it where no token was
// checked. Without a lock the sale goes wrong by chance: mostly, but not surely.
func TestSale(t *testing.T) {
	ownTempDir(t)
	results, progress := demonstrated[Result](t, Sale, "", 0)
	for i, name := range []string{"none", "lock", "paused-unfenced", "paused-fenced"} {
		r := results[i]
		if r.Strategy != name || r.Stock != stock || r.Oversold != max(0, r.Sold-stock) || !strings.Contains(progress, name) {
			t.Errorf("%s: %+v; the progress: %s", name, r, progress)
		}
		if wrong := name == "paused-unfenced"; name != "none" && wrong != (r.Sold != stock) {
			t.Errorf("%s sold %d of %d", name, r.Sold, stock)
		}
		if refused := name == "paused-fenced"; refused != (r.StaleRefused > 0) {
			t.Errorf("%s: %d steps were refused", name, r.StaleRefused)
		}
	}
}

// TestCancel: a demonstration whose context ends in the pause leaves neither files nor processes: cron and
// sale wait for all of them.
func TestCancel(t *testing.T) {
	ownTempDir(t)
	for _, show := range []func(context.Context, Options) error{Sale, Cron} {
		ctx, cancel := context.WithCancel(t.Context())
		begun := writer(func(text []byte) {
			if !strings.HasPrefix(string(text), "1 of 4") && !strings.HasPrefix(string(text), "2 of 4") {
				cancel()
			}
		})
		if err := show(ctx, Options{Out: io.Discard, Progress: begun, Ticks: 1000}); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
	}
}

type writer func([]byte)

func (w writer) Write(text []byte) (int, error) {
	w(text)
	return len(text), nil
}

// TestKilledService: if a process dies the others are killed, a stopped one too, and the error names it.
func TestKilledService(t *testing.T) {
	f := newFleet(t.Context())
	w := work{Sale: &service{Database: t.TempDir() + "/db", PauseFirst: true}}
	stopped, _, err := f.start(w)
	testserver.Must(t, err)
	testserver.Must(t, pause(stopped))
	w.Sale.Database = t.TempDir() // it cannot be opened as a file
	_, _, err = f.start(w)
	if err := f.wait(err); err == nil || !strings.Contains(err.Error(), "demo: process ") {
		t.Errorf("the error is %v", err)
	}
}
