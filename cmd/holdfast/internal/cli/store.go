package cli

import (
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
	"github.com/holdfastlock/holdfast/internal/storeurl"

	_ "github.com/holdfastlock/holdfast/celllock"           // cell://, cells://
	_ "github.com/holdfastlock/holdfast/etcdlock"           // etcd://, etcds://
	_ "github.com/holdfastlock/holdfast/filelock"           // file://
	_ "github.com/holdfastlock/holdfast/redislock"          // redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster://, redlock:// …
	_ "github.com/holdfastlock/holdfast/sqllock/mysqlconn"  // mysql://, mariadb://
	_ "github.com/holdfastlock/holdfast/sqllock/pgconn"     // postgres://, postgresql://
	_ "github.com/holdfastlock/holdfast/sqllock/sqliteconn" // sqlite://
	_ "github.com/holdfastlock/holdfast/zklock"             // zk://, zks://
)

// storeEnv is the variable that names the store if --store does not.
const storeEnv = "HOLDFAST_STORE"

// openWithin is the time limit for opening a store, and for each operation on it.
const openWithin = 15 * time.Second

// store is an open store.
type store struct {
	*holdfast.Client
	shown  string        // its URL without secrets
	prefix string        // hf.prefix: what the client puts in front of names
	ttl    time.Duration // hf.ttl: of locks without --ttl; 0: the default
}

// stateDir returns the directory for what this user's programs of Holdfast keep on this host.
func stateDir() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // as the XDG Base Directory Specification asks
		home, err := os.UserHomeDir()
		if err != nil {
			return "", errors.New("there is no home directory for the default one")
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "holdfast"), nil
}

// defaultStore returns the URL of this user's store on this host. The store is created when a lock
// is first taken in it.
func defaultStore() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", usagef("no store is named and %w: use --store or %s", err, storeEnv)
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "locks"))}).String(), nil
}

// storeURL is the value of --store.
type storeURL string

func (u *storeURL) Set(text string) error {
	if text == "" {
		return errors.New("name a store by its URL, or leave --store out")
	}
	*u = storeURL(text)
	return nil
}

func (u *storeURL) String() string { return string(*u) }

// Type is the name of the value in help texts.
func (*storeURL) Type() string { return "URL" }

// namedStore returns the URL of the store that the user has named, or "". A variable that is empty is
// refused: a host whose setting is missing would use locks of its own, and exclude none of the others.
func (a *app) namedStore() (string, error) {
	if a.store != "" {
		return a.store, nil
	}
	raw, set := os.LookupEnv(storeEnv)
	if set && raw == "" {
		return "", usagef("%s is set, but empty: name a store by its URL, or unset it for this user's own", storeEnv)
	}
	return raw, nil
}

// parseStore returns the URL of the store to use.
func (a *app) parseStore() (*url.URL, error) {
	raw, err := a.namedStore()
	if err != nil {
		return nil, err
	}
	if raw == "" {
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
	if u.Scheme == "mem" {
		return nil, usagef("the locks of mem:// are in the memory of one process, so those of a command would " +
			"exclude nobody: use file:///DIR on one host")
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
	params, rest, err := storeurl.Take(u)
	if err != nil {
		return nil, usagef("the store URL is wrong: %w", err)
	}
	s.prefix, s.ttl = params.Prefix, params.TTL
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	d, err := a.openDriver(ctx, rest)
	if err == nil {
		s.Client, err = holdfast.New(d, &holdfast.ClientOptions{Prefix: s.prefix, TTL: s.ttl, Events: events})
		if err != nil {
			d.Close()
		}
	}
	switch {
	case err == nil:
		return s, nil
	case fromOutside(err) && a.store == "" && os.Getenv(storeEnv) == "":
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
