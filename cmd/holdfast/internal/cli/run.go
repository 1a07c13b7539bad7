package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/lease"
)

// runFlags are the flags of run.
type runFlags struct {
	nonblock  bool
	wait      time.Duration
	waitSet   bool
	ttl       time.Duration
	shared    bool
	slots     int
	permits   int
	lockDelay time.Duration
	minHold   time.Duration
	maxHold   time.Duration
	grace     time.Duration
	graceSet  bool
	conflict  int
	note      string
	quiet     bool // --quiet
}

// defaultGrace is how long the command has to end by itself when its lock cannot be renewed.
const defaultGrace = 5 * time.Second

func (a *app) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:     "run [flags] NAME -- CMD [ARG...]",
		Short:   "Run a command while holding a lock",
		Long:    runHelp,
		Example: runExamples,
		Args:    nameAndCommand("run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.waitSet = cmd.Flags().Changed("wait")
			f.graceSet = cmd.Flags().Changed("grace")
			f.quiet = a.quiet
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.run(f, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&f.nonblock, "nonblock", "n", false, "give up at once if the lock is held")
	flags.VarP((*duration)(&f.wait), "wait", "w", "give up after this time, opening the store included; 0s is -n (default: wait for ever)")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", exitNotAcquired, "exit `code` when the lock was not acquired, 0 to 255; with 0 nothing is said of it")
	flags.Var((*duration)(&f.ttl), "ttl", "how long the store keeps the lock unrenewed (default 30s)")
	flags.BoolVar(&f.shared, "shared", false, "hold the lock together with other shared holders")
	flags.Var((*count)(&f.slots), "slots", "be one of at most `N` holders")
	flags.Var((*count)(&f.permits), "permits", "how many of the slots to take (default 1)")
	flags.Var((*duration)(&f.lockDelay), "lock-delay", "how much longer the lock stays closed if "+
		"this host or run dies")
	flags.Var((*duration)(&f.minHold), "min-hold", "keep the lock closed for at least this long, "+
		"even if CMD ends sooner")
	flags.Var((*duration)(&f.maxHold), "max-hold", "do not renew the lock any more after this "+
		"time: a CMD that hangs then loses it")
	flags.Var((*duration)(&f.grace), "grace", "how long before the lock runs out CMD gets "+
		"SIGTERM (default 5s, less with a short TTL)")
	flags.StringVar(&f.note, "note", "", "`text` shown to operators (default: command, host and process id)")
	return cmd
}

// nameAndCommand checks that the arguments are the name of a lock, two dashes and a command.
func nameAndCommand(verb string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch dash := cmd.ArgsLenAtDash(); {
		case dash < 0 && len(args) > 1:
			return usagef("there is no -- before the command: use holdfast %s NAME -- CMD ARG...", verb)
		case dash < 0 || dash == len(args):
			return usagef("the command to run is missing: use holdfast %s NAME -- CMD ARG...", verb)
		case dash != 1:
			return usagef("%d names are given: one is needed before --", dash)
		}
		return checkName(args[0])
	}
}

// check refuses flags that do not go together (P10). The lock checks those that depend on the store.
func (f *runFlags) check(cmd *cobra.Command) error {
	switch {
	case f.nonblock && f.waitSet && f.wait > 0:
		return usagef("-n gives up at once and -w after %v: use only one of them", f.wait)
	case f.wait < 0:
		return usagef("-w is %v: it must not be negative", f.wait)
	case f.conflict < 0 || f.conflict > 255:
		return usagef("-E is %d: an exit code is 0 to 255", f.conflict)
	case f.shared && cmd.Flags().Changed("slots"):
		return usagef("--shared and --slots are different kinds of lock: use only one of them")
	case cmd.Flags().Changed("permits") && f.slots == 0:
		return usagef("--permits says how many of the --slots to take: give both")
	case cmd.Flags().Changed("ttl") && f.ttl <= 0:
		return usagef("--ttl is %v: it must be positive", f.ttl)
	case cmd.Flags().Changed("max-hold") && f.maxHold <= 0:
		return usagef("--max-hold is %v: it must be positive", f.maxHold)
	case f.grace < 0:
		return usagef("--grace is %v: it must not be negative", f.grace)
	}
	f.nonblock = f.nonblock || f.waitSet && f.wait == 0
	return nil
}

// graceFor returns how long before the trust deadline the command is told to end. The grace must
// not begin while renewals are still on time. A longer one is refused; the default is made to fit.
func (f *runFlags) graceFor(caps holdfast.Caps) (time.Duration, error) {
	limit := f.slack(caps)
	if !f.graceSet {
		return min(defaultGrace, limit/2), nil
	}
	if f.grace >= limit {
		return 0, usagef("--grace is %v: with a TTL of %v it must be less than %v, the time from when "+
			"a renewal is due to the last moment of trust",
			f.grace, f.effectiveTTL(caps), limit.Truncate(time.Millisecond))
	}
	return f.grace, nil
}

// slack is how long the lease is trusted from the moment when its renewal is due.
func (f *runFlags) slack(caps holdfast.Caps) time.Duration {
	ttl := f.effectiveTTL(caps)
	return ttl - ttl/3 - lease.Margin(0, ttl)
}

// effectiveTTL is the TTL that the lock has: see holdfast.Options.
func (f *runFlags) effectiveTTL(caps holdfast.Caps) time.Duration {
	if f.ttl != 0 {
		return f.ttl
	}
	ttl := max(holdfast.DefaultTTL, caps.MinTTL)
	if caps.MaxTTL > 0 {
		ttl = min(ttl, caps.MaxTTL)
	}
	return ttl
}

// lock returns the lock that the flags describe.
func (f *runFlags) lock(s *store, name string, command []string) *holdfast.Lock {
	o := &holdfast.Options{
		TTL: f.ttl, LockDelay: f.lockDelay, MinHold: f.minHold, MaxHold: f.maxHold, Permits: f.permits, Note: f.note,
	}
	if o.Note == "" && !s.Caps().NoNotes {
		o.Note = defaultNote(command[0])
	}
	switch {
	case f.shared:
		return s.RWMutex(name, o).Read
	case f.slots > 0:
		return s.Semaphore(name, f.slots, o)
	}
	return s.Mutex(name, o)
}

// defaultNote tells an operator what is running where. It leaves out the command's arguments, which
// may contain secrets.
func defaultNote(program string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	note := fmt.Sprintf("%s on %s, pid %d", filepath.Base(program), host, os.Getpid())
	if len(note) > holdfast.MaxNote || !utf8.ValidString(note) {
		note = fmt.Sprintf("pid %d", os.Getpid())
	}
	return note
}
