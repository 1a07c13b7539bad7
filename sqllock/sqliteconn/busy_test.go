//go:build soak

package sqliteconn

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/busytest"
	"github.com/holdfastlock/holdfast/internal/test/sqltest"
	"github.com/holdfastlock/holdfast/sqllock"
)

// TestBusy: a busy client keeps its leases, though there is one writer at a time.
func TestBusy(t *testing.T) {
	url := "sqlite://" + filepath.Join(t.TempDir(), "locks.db")
	busytest.Run(t, func(time.Duration) {}, func() *holdfast.Client {
		locks, err := holdfast.Open(t.Context(), url)
		must(t, err)
		return locks
	})
}

// TestFullPool: renewals and releases have a connection even if an application has all others.
func TestFullPool(t *testing.T) {
	db := openDB(t, filepath.Join(t.TempDir(), "locks.db"))
	db.SetMaxOpenConns(4)
	d, err := New(t.Context(), db, nil)
	must(t, err)
	defer d.Close()
	sqltest.FullPool(t, db, d, nil)
}

// TestDeadlines: an ended context is told as such while another process writes.
func TestDeadlines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	d, err := New(t.Context(), openDB(t, file), nil)
	must(t, err)
	defer d.Close()
	held, err := d.Try(t.Context(), driver.Request{Name: "held", Owner: "holder", TTL: time.Minute})
	must(t, err)
	other, err := openDB(t, file).Conn(t.Context())
	must(t, err)
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func(context.Context) error{
		"Try": func(ctx context.Context) error {
			_, err := d.Try(ctx, driver.Request{Name: "n", Owner: "owner", TTL: time.Minute})
			return err
		},
		"Renew":   func(ctx context.Context) error { return d.Renew(ctx, []driver.Grant{held})[0].Err },
		"Release": func(ctx context.Context) error { return d.Release(ctx, []driver.Grant{held})[0] },
		"New": func(ctx context.Context) error {
			_, err := New(ctx, openDB(t, file), &sqllock.Options{Prefix: "new"})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("P11: %s after its deadline: %v", name, err)
		}
		cancel()
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		if err := call(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("P11: %s after it was cancelled: %v", name, err)
		}
	}
	if _, err := other.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
}
