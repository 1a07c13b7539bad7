package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/fallback"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// fallbackEnv is the variable that names the second store if --fallback does not.
const fallbackEnv = "HOLDFAST_FALLBACK"

// fallbackFlags say what to do while the store is silent.
type fallbackFlags struct {
	fallback string        // --fallback
	after    time.Duration // --fallback-after
	usable   bool          // by this command
}

func (f *fallbackFlags) addFallbackFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.fallback, "fallback", "",
		"run, elect: `URL` of a store to use while the store is down")
	flags.Var((*duration)(&f.after), "fallback-after",
		"run, elect: use it this long after the store went silent (default: the TTL)")
}

// checkFallback refuses the flags where they mean nothing. The variable is ignored there.
func (f *fallbackFlags) checkFallback(cmd *cobra.Command) error {
	f.usable = cmd.Name() == "run" || cmd.Name() == "elect"
	after := cmd.Flags().Changed("fallback-after")
	switch {
	case !f.usable && (f.fallback != "" || after):
		return usagef("--fallback is for run and elect, which take locks: to see a second store, name it by --store")
	case after && f.secondStore() == "":
		return usagef("--fallback-after says when to use the store of --fallback: give both")
	case after && f.after < 0:
		return usagef("--fallback-after is %v: it must not be negative", f.after)
	}
	if after && f.after == 0 {
		f.after = -1 // at once
	}
	return nil
}

// secondStore returns the URL of the second store, or "".
func (f *fallbackFlags) secondStore() string {
	if !f.usable {
		return ""
	}
	return cmp.Or(f.fallback, os.Getenv(fallbackEnv))
}

// openDriver opens the store, with a second one behind it if there is one.
func (f *fallbackFlags) openDriver(ctx context.Context, first *url.URL) (driver.Driver, error) {
	raw := f.secondStore()
	if raw == "" {
		return driver.Open(ctx, first)
	}
	second, err := parseURL(raw)
	if err != nil {
		return nil, fmt.Errorf("--fallback: %w", err)
	}
	for _, key := range storeurl.Keys {
		if second.Query().Has(key) {
			return nil, usagef("--fallback: %s belongs in the URL of the store, and holds for both", key)
		}
	}
	down := false
	d, err := fallback.Open(ctx, first, second, &fallback.Options{After: f.after, OnChange: func(c fallback.Change) {
		if c.State == fallback.StateOpen {
			complain(fmt.Errorf("%s does not answer (%w): locks are taken from %s when every hold in the first must have ended",
				driver.Redact(first), c.Err, driver.Redact(second)))
		} else if down {
			complain(fmt.Errorf("%s answers again", driver.Redact(first)))
		}
		down = c.State == fallback.StateOpen
	}})
	switch {
	case errors.Is(err, fallback.ErrSecond) && fromOutside(err):
		complain(fmt.Errorf("%w: there is nothing to fall back to", err))
		return driver.Open(ctx, first)
	case err != nil:
		return nil, err // not a nil *fallback.Driver
	}
	return d, nil
}
