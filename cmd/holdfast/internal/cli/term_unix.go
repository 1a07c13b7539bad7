//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/child"
	"github.com/holdfastlock/holdfast/driver"
)

// runner runs a command under a lock, once for each term.
type runner struct {
	store   *store
	lock    *holdfast.Lock
	flags   *runFlags
	signals chan os.Signal
	name    string
	path    string
	command []string
	grace   time.Duration
}

// termEnd is how a term, or the wait for it, came to its end.
type termEnd struct {
	ran    bool // the command has run
	wanted bool // a signal asked for the end
	final  bool // another term would end like this one
}

// term takes the lock, runs the command and gives the lock back. The error has
// the exit code.
func (r *runner) term() (termEnd, error) {
	lease, err := r.flags.acquire(r.lock, r.signals)
	began := driver.HostClock.Now()
	if err == nil {
		err = r.flags.refresh(lease, r.store.Caps())
	}
	var exit *exitError
	if err != nil {
		wanted := errors.As(err, &exit) && exit.code > exitSignal
		return termEnd{wanted: wanted, final: exit != nil && exit.code == exitUsage}, err
	}
	h := r.flags.wanted(r.store, r.name)
	h.Token, h.Sequencer = lease.Token(), lease.Sequencer()
	env := environment(r.name, h, append(inherited(), h))
	c, err := child.Start(child.Options{Path: r.path, Args: r.command, Env: env, Until: trustedUntil(lease)})
	if err != nil {
		lease.ReleaseNow() // the next attempt need not wait for --min-hold
		return termEnd{final: true}, startError(r.command[0], err)
	}
	sup := &supervisor{child: c, lease: lease, signals: r.signals, name: r.name, grace: r.grace}
	if r.flags.maxHold > 0 {
		sup.maxHold, sup.expires = r.flags.maxHold, began.Add(r.flags.maxHold)
	}
	err = sup.run()
	// Ctrl-C on a terminal goes to the command alone, which has the foreground.
	interrupted := errors.As(err, &exit) && (exit.code == exitSignal+int(syscall.SIGINT) || exit.code == exitSignal+int(syscall.SIGQUIT))
	return termEnd{ran: true, wanted: sup.asked || interrupted}, err
}
