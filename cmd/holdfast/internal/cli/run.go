//go:build unix

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/core/lease"
	"github.com/holdfastlock/holdfast/internal/hostnote"
)

// runFlags are the flags of run.
type runFlags struct {
	fallbackFlags
	nonblock                         bool // or a -w of 0
	wait                             time.Duration
	until                            time.Time // when the time of -n or -w is over, or without them that for opening
	ttl, lockDelay, minHold, maxHold time.Duration
	shared                           bool
	slots, permits                   int
	grace                            time.Duration
	graceSet                         bool
	conflict                         int
	note                             string
	quiet                            bool // --quiet
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
	flags.DurationVarP(&f.wait, "wait", "w", 0, "give up after this time, opening the store included; 0s is -n (default: wait for ever)")
	flags.IntVarP(&f.conflict, "conflict-exit-code", "E", exitNotAcquired, "exit `code` when the lock was not acquired, 0 to 255; with 0 nothing is said of it")
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the store keeps the lock unrenewed (default 30s)")
	flags.BoolVar(&f.shared, "shared", false, "hold the lock together with other shared holders")
	flags.IntVar(&f.slots, "slots", 0, "be one of at most `N` holders")
	flags.IntVar(&f.permits, "permits", 0, "how many of the slots to take (default 1)")
	flags.DurationVar(&f.lockDelay, "lock-delay", 0, "how much longer the lock stays closed if this host or run dies")
	flags.DurationVar(&f.minHold, "min-hold", 0, "keep the lock closed for at least this long, even if CMD ends sooner")
	flags.DurationVar(&f.maxHold, "max-hold", 0, "do not renew the lock any more after this time: a CMD that hangs then loses it")
	flags.DurationVar(&f.grace, "grace", 0, "how long before the lock runs out CMD gets SIGTERM (default 5s, less with a short TTL)")
	flags.StringVar(&f.note, "note", "", "`text` shown to operators (default: command, host and process id)")
	f.add(flags)
	return cmd
}

// bounded returns a context that ends when the store must have answered.
func (f *runFlags) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	answered := f.until.Add(answerWithin * Patience)
	if f.fallback != "" { // it is of use when the first store has been silent for longer than that
		answered = answered.Add(openWithin)
	}
	return context.WithDeadline(ctx, answered)
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
	case f.nonblock && f.wait > 0:
		return usagef("-n gives up at once and -w after %v: use only one of them", f.wait)
	case f.wait < 0:
		return usagef("-w is %v: it must not be negative", f.wait)
	case f.conflict < 0 || f.conflict > 255:
		return usagef("-E is %d: an exit code is 0 to 255", f.conflict)
	case f.shared && cmd.Flags().Changed("slots"):
		return usagef("--shared and --slots are different kinds of lock: use only one of them")
	case cmd.Flags().Changed("slots") && f.slots < 1:
		return usagef("--slots is %d: at least 1 is needed", f.slots)
	case cmd.Flags().Changed("permits") && f.permits < 1:
		return usagef("--permits is %d: at least 1 is needed", f.permits)
	case cmd.Flags().Changed("permits") && f.slots == 0:
		return usagef("--permits says how many of the --slots to take: give both")
	case cmd.Flags().Changed("ttl") && f.ttl <= 0:
		return usagef("--ttl is %v: it must be positive", f.ttl)
	case cmd.Flags().Changed("max-hold") && f.maxHold <= 0:
		return usagef("--max-hold is %v: it must be positive", f.maxHold)
	case f.grace < 0:
		return usagef("--grace is %v: it must not be negative", f.grace)
	}
	f.nonblock = f.nonblock || cmd.Flags().Changed("wait") && f.wait == 0
	f.until = time.Now().Add(f.wait)
	if f.wait == 0 && !f.nonblock {
		f.until = f.until.Add(openWithin)
	}
	f.graceSet = cmd.Flags().Changed("grace")
	return f.fallbackFlags.check(cmd)
}

// graceToUse returns how long before the trust deadline the command is told to end. The grace must not begin while
// renewals are on time: a longer one is refused, and the default is made to fit.
func (f *runFlags) graceToUse() (time.Duration, error) {
	limit := f.slack()
	if !f.graceSet {
		return min(defaultGrace, limit/2), nil
	}
	if f.grace >= limit {
		return 0, usagef("--grace is %v: with a TTL of %v it must be less than %v, the time from when "+
			"a renewal is due to the last moment of trust",
			f.grace, f.ttl, limit.Truncate(time.Millisecond))
	}
	return f.grace, nil
}

// slack is how long the lease is trusted from the moment when its renewal is due.
func (f *runFlags) slack() time.Duration { return f.ttl - f.ttl/3 - lease.Margin(0, f.ttl) }

// lock returns the lock that the flags describe.
func (f *runFlags) lock(s *store, name string, command []string) *holdfast.Lock {
	o := &holdfast.Options{
		TTL: f.ttl, LockDelay: f.lockDelay, MinHold: f.minHold, MaxHold: f.maxHold, Permits: f.permits, Note: f.note,
	}
	if o.Note == "" && !s.Caps().NoNotes {
		o.Note = hostnote.Of(command[0], holdfast.MaxNote)
	}
	switch {
	case f.shared:
		return s.RWMutex(name, o).Read
	case f.slots > 0:
		return s.Semaphore(name, f.slots, o)
	}
	return s.Mutex(name, o)
}

const runHelp = `Run takes the lock NAME, runs CMD, and releases the lock when CMD has ended.

Waiting. The time of -w begins when run starts, and covers opening the store too. With -w a store
that does not work is tried again until that time is over. Run ends at once if no waiting helps: the
host's name is not known, its certificate is not trusted, the password is refused, or rights are
missing. If the store has said nothing when the time is over, run asks once more whether the lock is
held, and ends within two seconds, with --fallback within some more. So does -n, whose time is over
at once. Without -n and -w a silent store is given up after 5 to 15 s.

CMD is run directly, without a shell. It has run's input and outputs, and run ends with its exit
code. If CMD is not found, the lock is not taken. With -q, or with -E 0, run says nothing if it
does not get the lock: cron then sends no mail.

Signals. INT, TERM, HUP, QUIT, USR1, USR2, WINCH and CONT are passed on to CMD and its process
group. While run still waits for the lock, each of the first four ends the wait; a second one ends
run without waiting for the store. A CMD that reads the terminal gets its foreground. Ctrl-Z does
not stop CMD: a job that stands still could not renew its lock.

Loss. If the lock cannot be renewed, CMD gets SIGTERM --grace before the lock runs out, and
SIGKILL when it does: CMD and all that it has started are gone before anyone else can hold the
lock. If an operator breaks the lock, CMD gets SIGKILL within a second, or if the store does not
answer with the next renewal. Run then ends with exit code 76, whatever CMD returned.

Guard. CMD's parent is a guard process, holdfast-guard in ps. If run itself is killed, with kill -9
too, or stands still until the lock runs out, the guard kills CMD and, on Linux, all that CMD has
started, whatever group or session it is in. If the guard is killed, run does the same. These
processes survive: processes of other users, such as those that CMD starts by sudo (put sudo before
holdfast instead); if run and the guard are both killed with kill -9, the processes that CMD has
started, but not CMD; if both are stopped, by a signal to each or by a debugger, all of CMD, beside
the next holder, until the guard is continued; on other systems than Linux, and without a /proc of
their PID namespace, processes that have left CMD's process group. When run is killed, the next
holder may have the lock at once if the store notices that run is dead (files), else after the TTL:
--lock-delay gives the guard time. Processes that CMD leaves running in the background when it ends
go on without the lock.

--fallback, or HOLDFAST_FALLBACK, names a second store for when the first is down. Run uses it when
every hold in the first must have ended: one TTL (or --fallback-after) after the first was last
known to answer, or after run has found it down. Such a hold is degraded: it excludes only those who
use the second store too, run says so, and HOLDFAST_TOKEN is 0. See docs/choose.md.

If even a moment's overlap after a pause would do harm, give HOLDFAST_TOKEN to the resource, and let
the resource refuse lower tokens than the highest that it has seen.

CMD's environment has
    HOLDFAST_NAME       NAME
    HOLDFAST_TOKEN      the fencing token of the hold; it grows with each hold
    HOLDFAST_SEQUENCER  name, mode and token as one word
    HOLDFAST_HELD       this hold and those around it, as a JSON array of
                        {"store", "name", "mode", "token", "sequencer", …}
If CMD runs holdfast run with the same NAME and store, and the outer hold is enough and still held,
the inner run takes no lock, stays in the outer process group and becomes its CMD.

` + runExitCodes

const runExamples = `  # in crontab: skip this time if the last run is not over, without a word
  holdfast run -n -E 0 nightly-backup -- /usr/local/bin/backup

  # on several hosts, once per tick although their clocks differ
  holdfast run -n --min-hold 30s report -- /usr/local/bin/report

  # wait for at most ten minutes
  holdfast run -w 10m deploy/shop -- ./deploy.sh

  # at most three at a time
  holdfast run --slots 3 encode -- ffmpeg -i in.mkv out.mp4`
