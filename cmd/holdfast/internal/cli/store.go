package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"

	_ "github.com/holdfastlock/holdfast/etcdlock"              // etcd://, etcds://
	_ "github.com/holdfastlock/holdfast/filelock"              // file://
	_ "github.com/holdfastlock/holdfast/memlock"               // mem://
	_ "github.com/holdfastlock/holdfast/redislock/rueidisconn" // redis://, rediss://, redis+unix://
	_ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"     // mysql://
	_ "github.com/holdfastlock/holdfast/sqllock/pgconn"        // postgres://, postgresql://
	_ "github.com/holdfastlock/holdfast/sqllock/sqliteconn"    // sqlite://
)

// storeEnv is the variable that names the store if --store does not.
const storeEnv = "HOLDFAST_STORE"

// openWithin is the time limit for opening a store, and for each operation on it.
const openWithin = 15 * time.Second

// store is an open store.
type store struct {
	*holdfast.Client
	shown  string // its URL without secrets
	prefix string // hf.prefix: what the client puts in front of names
}

// defaultStore returns the URL of this user's store on this host. The store is created when a lock
// is first taken in it.
func defaultStore() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // as the XDG Base Directory Specification asks
		home, err := os.UserHomeDir()
		if err != nil {
			return "", usagef("no store is named and there is no home directory for the default one: "+
				"use --store or %s", storeEnv)
		}
		state = filepath.Join(home, ".local", "state")
	}
	dir := filepath.Join(state, "holdfast", "locks")
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String(), nil
}

// namedStore returns the URL of the store that the user has named, or "".
func (a *app) namedStore() string { return cmp.Or(a.store, os.Getenv(storeEnv)) }

// parseStore returns the URL of the store to use.
func (a *app) parseStore() (*url.URL, error) {
	raw := a.namedStore()
	if raw == "" {
		var err error
		if raw, err = defaultStore(); err != nil {
			return nil, err
		}
	}
	return parseURL(raw)
}

// parseURL parses the URL of a store that the command knows.
func parseURL(raw string) (*url.URL, error) {
	u, err := driver.ParseURL(raw)
	if err != nil {
		return nil, usagef("%w", err)
	}
	if !slices.Contains(driver.Schemes(), u.Scheme) {
		return nil, usagef("no store has the URL scheme %q; known are: %s",
			u.Scheme, strings.Join(driver.Schemes(), ", "))
	}
	return u, nil
}

// open opens the store to use, as holdfast.Open does, with events.
func (a *app) open(ctx context.Context, events holdfast.Events) (*store, error) {
	u, err := a.parseStore()
	if err != nil {
		return nil, err
	}
	s := &store{shown: driver.Redact(u)}
	query := u.Query()
	if len(query["hf.prefix"]) > 1 {
		return nil, usagef("the store URL has hf.prefix twice")
	}
	if query.Has("hf.prefix") {
		s.prefix = query.Get("hf.prefix")
		query.Del("hf.prefix")
		u.RawQuery = query.Encode()
	}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	d, err := a.openDriver(ctx, u)
	if err == nil {
		s.Client, err = holdfast.New(d, &holdfast.ClientOptions{Prefix: s.prefix, Events: events})
		if err != nil {
			d.Close()
		}
	}
	switch {
	case err == nil:
		return s, nil
	case fromOutside(err) && a.namedStore() == "":
		return nil, storeError(fmt.Errorf("cannot open the default store %s: %w; "+
			"another store can be named by --store or %s", s.shown, err, storeEnv))
	case fromOutside(err):
		return nil, storeError(fmt.Errorf("cannot open %s: %w", s.shown, err))
	}
	return nil, usagef("cannot open %s: %w", s.shown, err)
}

// withStore opens the store, calls fn, and closes the store.
func (a *app) withStore(ctx context.Context, fn func(context.Context, *store) error) error {
	s, err := a.open(ctx, holdfast.Events{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	err = fn(ctx, s)
	if closeErr := s.Close(); err == nil && closeErr != nil {
		err = storeError(closeErr)
	}
	return err
}

// checkName refuses a bad name before any I/O (P10).
func checkName(name string) error {
	if err := driver.CheckName(name); err != nil {
		return usagef("%w", err)
	}
	return nil
}

// operationError gives the error of an operation on a store its exit code.
func operationError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, holdfast.ErrUnsupported):
		return usagef("%w", err)
	case errors.Is(err, holdfast.ErrNotHeld):
		return &exitError{exitFailure, err}
	}
	return storeError(err)
}
