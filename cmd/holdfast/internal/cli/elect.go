//go:build unix

package cli

import (
	"errors"
	"fmt"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
)

// electFlags are the flags of elect: some of run's, and its own.
type electFlags struct {
	runFlags
	value string
	once  bool
}

const electHelp = `Elect stands for election to the office NAME, and runs CMD when it is elected. One process
at a time holds the office. All others wait, in the order in which they came if the store
keeps a queue.

When CMD has ended, whatever its exit code, elect gives up the office and stands again,
behind those who wait, and says so unless -q is given. Before that it pauses if CMD has
ended soon, longer each time, up to 30 s. With --once elect ends with CMD's exit code
instead. If the office is lost, because it could not be renewed or an operator has ended it
by 'holdfast break', CMD is killed in time, as by run, and elect stands again.

While elect waits, INT, TERM, HUP and QUIT end it at once. While CMD runs, signals go to
CMD. If one of them was INT, TERM, HUP or QUIT, elect ends when CMD has ended, with CMD's
exit code.

'holdfast leader' and 'holdfast show' show --value to others, and so does package
election in programs. CMD's environment is as with run; HOLDFAST_TOKEN grows with each
term.

` + runExitCodes + `

Without --once elect ends by a signal, or with 64, 69 or 70 at the start.`

func (a *app) electCommand() *cobra.Command {
	f := &electFlags{}
	cmd := &cobra.Command{
		Use:   "elect [flags] NAME -- CMD [ARG...]",
		Short: "Run a command on the elected leader only",
		Long:  electHelp,
		Example: `  # on each host: one of them runs the scheduler
  holdfast elect scheduler --value "$(hostname):8080" -- ./scheduler

  # who is it?
  holdfast leader scheduler`,
		Args: nameAndCommand("elect"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.note, f.quiet = f.value, a.quiet
			if err := f.check(cmd); err != nil {
				return err
			}
			return a.elect(f, args[0], args[1:])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.value, "value", "", "`text` that others see, an address for example (default: command, host and process id)")
	flags.BoolVar(&f.once, "once", false, "end when CMD has ended, with its exit code")
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the office stays taken if this host or elect dies (default 30s)")
	flags.DurationVar(&f.lockDelay, "lock-delay", 0, "how much longer it then stays closed")
	flags.DurationVar(&f.grace, "grace", 0, "how long before the office runs out CMD gets SIGTERM (default 5s, less with a short TTL)")
	f.add(flags)
	return cmd
}

// elect is the command elect.
func (a *app) elect(f *electFlags, name string, command []string) error {
	return a.withRunner(&f.runFlags, name, command, func(r *runner) error {
		want := f.wanted(r.store, name)
		for _, h := range inherited() {
			if h.Store == want.Store && h.Name == want.Name {
				return usagef("%q is held by the holdfast around this one: it would wait for itself", name)
			}
		}
		signal.Notify(r.signals, child.Signals()...)
		return r.terms(f.once)
	})
}

// Terms that are shorter than goodTerm are followed by pauses, longer each time.
const goodTerm, firstPause, longestPause = 10 * time.Second, time.Second, 30 * time.Second

// terms stands for election again and again, until it is told to end.
func (r *runner) terms(once bool) error {
	pause := time.Duration(0)
	for first := true; ; first = false {
		start := time.Now()
		ran, last, err := r.hold()
		switch {
		case last, ran && once, !ran && first:
			return err
		case !ran:
			complain(err) // the store worked at the start, so it may work again
		}
		pause = min(max(2*pause, firstPause), longestPause)
		if time.Since(start) >= goodTerm {
			pause = 0
		}
		if ran && !r.flags.quiet {
			again := "standing again"
			if pause > 0 {
				again += fmt.Sprintf(" in %v", pause)
			}
			term := fmt.Sprintf("the command has ended with exit code %d", codeOf(err))
			if codeOf(err) == exitLost {
				term = "the office was lost"
			}
			complain(errors.New(term + "; " + again))
		}
		if _, by := awaitUnlessAsked(time.After(pause), r.signals); by != 0 {
			return &exitError{exitSignal + int(by), nil}
		}
	}
}
