//go:build soak

package sqliteconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func init() { parts["fill"] = fill }

// fill uses a store whose disk is full for a while.
func fill(args []string) error {
	file := args[0]
	signal.Ignore(syscall.SIGXFSZ)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	d, err := openURL(ctx, "sqlite://"+file)
	if err != nil {
		return err
	}
	defer d.Close()
	held, err := d.Try(ctx, driver.Request{Name: "held", Owner: "o", TTL: time.Minute})
	if err != nil {
		return err
	}
	empty, err := fillUp(file)
	if err != nil {
		return err
	}
	refused, err := untilRefused(ctx, d)
	if err != nil || refused.Owner == "" {
		return fmt.Errorf("requests on a full disk: %w", err)
	}
	if err := d.Renew(ctx, []driver.Grant{held})[0].Err; driver.Gone(err) {
		return fmt.Errorf("P1: on a full disk a hold is gone: %w", err)
	}
	if err := empty(); err != nil {
		return err
	}
	if err := d.Renew(ctx, []driver.Grant{held})[0].Err; err != nil {
		return fmt.Errorf("P2: a hold cannot be renewed when there is room again: %w", err)
	}
	if err := d.Release(ctx, []driver.Grant{refused})[0]; err != nil {
		return fmt.Errorf("P6: a request that failed cannot be withdrawn: %w", err)
	}
	next := refused.Request
	next.Owner = "another"
	g, err := d.Try(ctx, next)
	if err != nil || g.Token <= held.Token {
		return fmt.Errorf("P6: after a request that failed and was withdrawn the name is not free: %+v, %w", g, err)
	}
	return errors.Join(d.Release(ctx, []driver.Grant{held, g})...)
}

// fillUp leaves no room, by this process's limit for files, and returns how to have some again.
func fillUp(file string) (empty func() error, err error) {
	log, err := os.Stat(file + "-wal")
	if err != nil {
		return nil, err
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return nil, err
	}
	limit := syscall.Rlimit{Cur: uint64(log.Size() + 100), Max: was.Max}
	return func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was) }, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}

// untilRefused takes holds until the store cannot keep another, and returns the
// request that failed.
func untilRefused(ctx context.Context, d driver.Driver) (driver.Grant, error) {
	for i := range 1000 {
		r := driver.Request{Name: fmt.Sprint("n", i), Owner: fmt.Sprint("o", i), TTL: time.Minute, Note: strings.Repeat("x", 500)}
		_, err := d.Try(ctx, r)
		switch {
		case err == nil:
		case errors.Is(err, driver.ErrHeld), driver.Gone(err), ctx.Err() != nil:
			return driver.Grant{}, err
		default:
			return driver.Grant{Request: r}, nil
		}
	}
	return driver.Grant{}, errors.New("all were granted")
}

// TestFullDisk: where the file may not grow a request fails with an error, a hold stays, and everything goes on when
// there is room again.
func TestFullDisk(t *testing.T) {
	testserver.StartChild(t, "fill", filepath.Join(t.TempDir(), "locks.db")).End()
}
