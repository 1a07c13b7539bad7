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
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
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

// Patience multiplies answerWithin and waitUsually. The tests raise it: none may fail because the machine is slow.
var Patience time.Duration = 1

const (
	// openWithin is the time limit of run and elect, without -n and -w, for opening a store, and of each question to it.
	openWithin = 15 * time.Second
	// answerWithin is how long the store may answer after the time of run's -n or -w. With closeAfterLoss it is two seconds.
	answerWithin = 1500 * time.Millisecond
	// waitUsually is the default of the -w of other commands.
	waitUsually = 5 * time.Second
)

// bounded gives a command the flag -w, which bounds all that it waits for at the store.
func (a *app) bounded(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().DurationVarP(&a.wait, "wait", "w", waitUsually*Patience, "give up after this time, opening the store included")
	return cmd
}

// store is an open store.
type store struct {
	*holdfast.Client
	shown  string        // its URL, without secrets
	prefix string        // hf.prefix: what the client puts in front of names
	ttl    time.Duration // hf.ttl: of locks without --ttl; 0: the default
	tells  bool          // it tells of losses (driver.Notifier)
	doubt  atomic.Value  // why the last renewal failed: a text
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

// namedStore returns the URL of the store that the user has named, or "". An empty variable is refused: a host
// whose setting is missing would use locks of its own, and exclude none of the others.
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

// parseStore returns the URL of the store to use: the named one, or this user's own on this host, which is created
// when a lock is first taken in it.
func (a *app) parseStore() (*url.URL, error) {
	raw, err := a.namedStore()
	switch {
	case err != nil:
		return nil, err
	case raw != "":
		return parseURL(raw)
	}
	dir, err := stateDir()
	if err != nil {
		return nil, usagef("no store is named and %w: use --store or %s", err, storeEnv)
	}
	return &url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "locks"))}, nil
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

// open opens the store to use.
func (a *app) open(ctx context.Context) (*store, error) {
	return a.openBy(ctx, driver.Open, nil)
}

// openBy opens the store to use, as holdfast.Open does, by a function that opens its driver. Waiting, if it is not nil,
// is called when the store has told to wait.
func (a *app) openBy(ctx context.Context, by driver.Opener, waiting func(holdfast.Event)) (*store, error) {
	u, err := a.parseStore()
	if err != nil {
		return nil, err
	}
	params, rest, err := storeurl.Take(u)
	if err != nil {
		return nil, usagef("the store URL is wrong: %w", err)
	}
	s := &store{shown: driver.Redact(u), prefix: params.Prefix, ttl: params.TTL}
	sound := func(holdfast.Event) { s.doubt.Store("no answer") }
	sound(holdfast.Event{})
	doubtful := func(e holdfast.Event) { s.doubt.Store(e.Err.Error()) }
	events := holdfast.Events{Waiting: waiting, InDoubt: doubtful, Recovered: sound}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	d, err := by(ctx, rest)
	if err == nil {
		n, ok := driver.As[driver.Notifier](d)
		s.tells = ok && n.Losses() != nil
		if s.Client, err = holdfast.New(d, &holdfast.ClientOptions{Prefix: s.prefix, TTL: s.ttl, Events: events}); err != nil {
			d.Close()
		}
	}
	switch {
	case err == nil:
		return s, nil
	case is[*exitError](err): // of --fallback
		return nil, err
	case fromOutside(err) && a.store == "" && os.Getenv(storeEnv) == "":
		return nil, storeError(fmt.Errorf("cannot open the default store %s: %w; "+
			"another store can be named by --store or %s", s.shown, err, storeEnv))
	case fromOutside(err):
		return nil, storeError(fmt.Errorf("cannot open %s: %w", s.shown, err))
	}
	return nil, usagef("cannot open %s: %w", s.shown, err)
}

// withStore opens the store, calls fn, and closes the store, all within the time of -w.
func (a *app) withStore(ctx context.Context, fn func(context.Context, *store) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	err = fn(ctx, s)
	if closeErr := s.Close(); err == nil && closeErr != nil {
		err = storeError(closeErr)
	}
	return err
}

// fallbackEnv is the variable that names the second store if --fallback does not.
const fallbackEnv = "HOLDFAST_FALLBACK"

// fallbackFlags say what to do while the store is silent.
type fallbackFlags struct {
	fallback string        // --fallback
	after    time.Duration // --fallback-after
}

func (f *fallbackFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.fallback, "fallback", "", "`URL` of a store to use while the store is down")
	flags.DurationVar(&f.after, "fallback-after", 0, "use it this long after the store went silent (default: the TTL)")
}

func (f *fallbackFlags) check(cmd *cobra.Command) error {
	f.fallback = cmp.Or(f.fallback, os.Getenv(fallbackEnv))
	switch after := cmd.Flags().Changed("fallback-after"); {
	case after && f.fallback == "":
		return usagef("--fallback-after says when to use the store of --fallback: give both")
	case f.after < 0:
		return usagef("--fallback-after is %v: it must not be negative", f.after)
	case after && f.after == 0:
		f.after = -1 // at once
	}
	return nil
}

// open opens the store, with the second one behind it if there is one.
func (f *fallbackFlags) open(ctx context.Context, first *url.URL) (driver.Driver, error) {
	if f.fallback == "" {
		return driver.Open(ctx, first)
	}
	second, err := parseURL(f.fallback)
	if err != nil {
		return nil, usagef("--fallback: %w", err)
	}
	if q := second.Query(); q.Has("hf.prefix") || q.Has("hf.ttl") {
		return nil, usagef("--fallback: hf.prefix and hf.ttl belong in the URL of the store, and hold for both")
	}
	to, err := driver.Open(ctx, second)
	switch {
	case err != nil && fromOutside(err):
		complain(fmt.Errorf("%s cannot be opened: %w: there is nothing to fall back to", driver.Redact(second), err))
		return driver.Open(ctx, first)
	case err != nil:
		return nil, usagef("--fallback: %w", err)
	}
	down := false
	d, err := fallback.Open(ctx, first, to, &fallback.Options{After: f.after, OnChange: func(c fallback.Change) {
		if c.Open {
			complain(fmt.Errorf("%s does not answer (%w): locks are taken from %s when every hold in the first must have ended",
				driver.Redact(first), c.Err, driver.Redact(second)))
		} else if down {
			complain(fmt.Errorf("%s answers again", driver.Redact(first)))
		}
		down = c.Open
	}})
	if err != nil {
		return nil, errors.Join(err, to.Close()) // not a nil *fallback.Driver
	}
	return d, nil
}
