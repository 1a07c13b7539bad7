package cli

import (
	"time"

	"github.com/spf13/cobra"
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
			f.graceSet = cmd.Flags().Changed("grace")
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
	flags.Var((*duration)(&f.ttl), "ttl", "how long the office stays taken if this host or elect "+
		"dies (default 30s)")
	flags.Var((*duration)(&f.lockDelay), "lock-delay", "how much longer it then stays closed")
	flags.Var((*duration)(&f.grace), "grace", "how long before the office runs out CMD gets "+
		"SIGTERM (default 5s, less with a short TTL)")
	return cmd
}

// goodTerm is how long a term must last so that the next one begins without a pause.
const goodTerm = 10 * time.Second

// pauses are the pauses after terms that were shorter than goodTerm.
type pauses struct{ next time.Duration }

// after returns the pause after a term.
func (p *pauses) after(term time.Duration) time.Duration {
	const first, longest = time.Second, 30 * time.Second
	if term >= goodTerm {
		p.next = 0
		return 0
	}
	p.next = min(max(2*p.next, first), longest)
	return p.next
}
