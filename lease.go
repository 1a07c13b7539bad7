package holdfast

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/core"
)

// Lease is one hold on a lock. The client renews it in the background until it is released or lost.
// Safe for concurrent use.
//
// A holder can be wrong about its lease: the process may stand still between a check of the lease
// and the act that relies on it. If that must not happen, hand the token to the resource and let it
// refuse lower ones: see package fence.
type Lease struct {
	client *Client
	core   core.Lease
}

// Name returns the lock's name without the client's prefix.
func (le *Lease) Name() string { return le.core.Name() }

// Mode returns how the lease holds the name.
func (le *Lease) Mode() Mode { return le.core.Snapshot().Mode }

// Token returns the fencing token. It is higher than those of the exclusive holds on the name
// before it; that of an exclusive lease is higher than those of the shared holds too. The store's
// Guarantees say how far that holds (P3). It does not change during the life of the lease, except
// by Downgrade. 0: the store gives none.
func (le *Lease) Token() Token { return le.core.Snapshot().Token }

// Degraded reports whether the lease is in a second store, because the first is silent (package
// fallback). It then excludes only those who use the second store too, and its token is 0. It does
// not change during the life of the lease.
func (le *Lease) Degraded() bool { return le.core.Snapshot().Degraded }

// Sequencer returns name, mode and token as one opaque line of printable ASCII, to be handed to the
// guard of the resource: see Client.CheckSequencer and package fence. A hold whose sequencer was
// asked for goes back to the store when it is released, also where others in the process wait.
func (le *Lease) Sequencer() string {
	s, _ := le.core.Show()
	return driver.Sequencer{Name: le.client.opts.Prefix + le.Name(), Mode: s.Mode, Token: s.Token}.String()
}

// Grant returns the hold as its driver knows it. It is for packages that belong to one store, such
// as the guards for data beside the locks: a hold of which the grant was asked for goes back to the
// store when it is released, also where others in the process wait. To learn whether the lease is
// trusted use Err: Since and Valid say no more.
func (le *Lease) Grant() driver.Grant {
	_, g := le.core.Show()
	return g
}

// Err returns nil while the lease can be trusted, and after that always the same *LostError or
// ErrReleased. It reads the clock, so it is right at every instant, whatever timers and the network
// do (P2).
func (le *Lease) Err() error { return le.core.Err() }

// Done returns a channel that is closed when Err is no longer nil: at the release, or at the loss,
// as soon as the process runs.
func (le *Lease) Done() <-chan struct{} { return le.core.Done() }

// ValidUntil returns the present trust deadline, by the present wall clock. Use it to show and to
// estimate; Err decides.
func (le *Lease) ValidUntil() time.Time { return le.client.core.Wall(le.core.Until()) }

// String returns what the lease is, for logs: its name, token and remaining time of trust, or why it is
// over. It does not show what could release the hold.
func (le *Lease) String() string {
	state := ""
	if err := le.Err(); err == nil {
		state = fmt.Sprintf("trusted for %v", max(0, time.Until(le.ValidUntil())).Round(time.Millisecond))
	} else {
		state = strings.TrimPrefix(err.Error(), "holdfast: ")
	}
	if t := le.Token(); t != 0 {
		return fmt.Sprintf("lease on %q, token %d: %s", le.Name(), t, state)
	}
	return fmt.Sprintf("lease on %q: %s", le.Name(), state)
}

// Format implements fmt.Formatter: every verb writes what String returns, %q in quotes. Without it %#v
// and %d would show the inside of the lease, and with it what could release the hold.
func (le *Lease) Format(s fmt.State, verb rune) {
	if verb == 'q' {
		fmt.Fprintf(s, "%q", le.String())
		return
	}
	io.WriteString(s, le.String())
}

// Renew renews the lease now. Use it to be sure of the lease before something begins, or if
// Options.RenewEvery has switched renewal off. It returns nil if the TTL has started again, and the
// error of Err if the lease is over. It returns ErrMaxHold if the lease goes on but must not become
// longer (Options.MaxHold). Any other error is the store's; the lease is then in doubt.
func (le *Lease) Renew(ctx context.Context) error { return le.change(ctx, "renew", le.core.Renew) }

// Downgrade turns an exclusive hold into a shared one without a gap: nobody can hold the name
// exclusively in between. It is refused while the hold has other leases, which rely on holding the
// name alone. After an error that is neither a loss nor ErrUnsupported the lease counts as shared, because
// the store may have downgraded it; Downgrade may be called again.
func (le *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	d, ok := driver.As[driver.Downgrader](le.client.driver)
	if ctx != nil && (!ok || !le.client.caps.Shared) {
		return failed(op, le.Name(), ErrUnsupported)
	}
	return le.change(ctx, op, func(ctx context.Context) error { return le.core.Downgrade(ctx, d) })
}

// change runs an operation on a lease that is not over. If the lease is over when the operation has ended, the
// error is that of Err.
func (le *Lease) change(ctx context.Context, op string, do func(context.Context) error) error {
	if ctx == nil {
		return errNilContext(op)
	}
	err := le.Err()
	if err == nil {
		err = le.client.core.Start()
	}
	if err != nil {
		return failed(op, le.Name(), err)
	}
	defer le.client.core.Stop()
	err = do(ctx)
	if over := le.Err(); over != nil {
		err = over
	}
	if err != nil {
		return failed(op, le.Name(), err)
	}
	return nil
}

// Reenter returns one more lease on the same hold. The hold is released when the last of its leases
// is; a loss ends all of them. It costs no round trip, and the store shows one hold.
func (le *Lease) Reenter() (*Lease, error) {
	again, err := le.share(Shared)
	if err != nil {
		return nil, failed("reenter", le.Name(), err)
	}
	return again, nil
}

// share returns one more lease on the hold. The error is ErrDeadlock if mode is Exclusive and the
// hold is not.
func (le *Lease) share(mode Mode) (*Lease, error) {
	if err := le.Err(); err != nil {
		return nil, err
	}
	other := &Lease{client: le.client}
	if le.core.Share(&other.core, mode) {
		return other, nil
	}
	if err := le.Err(); err != nil {
		return nil, err
	}
	return nil, ErrDeadlock
}

// Release releases the lease. The name is free once the last lease of the hold is released or, with
// Options.MinHold, once that time is over too (but see ReleaseNow).
//
// It takes no context, because it must work in a defer after the caller's context has ended. It
// waits for the store as long as the lease would have been valid, at most 5 s. If the store has not
// confirmed the release by then, the error is ErrUncertain and the release goes on in the
// background. If the lease was lost before, the error is the *LostError: the work under it may have
// run unprotected. A second call does nothing but wait for the first and return its result.
func (le *Lease) Release() error { return le.core.Release(false) }

// ReleaseNow releases the lease without the minimum hold (Options.MinHold). Use it if the work
// could not begin and nothing was done under the lease, so that another may do it at once. If
// several leases share a hold, the minimum holds unless all of them are released by ReleaseNow. A
// second call, of either, does nothing but wait for the first and return its result.
func (le *Lease) ReleaseNow() error { return le.core.Release(true) }

// heldKey is the key under which a context carries its leases.
type heldKey struct{}

// heldList is the leases that a context carries, the innermost first.
type heldList struct {
	lease *Lease
	outer *heldList
}

// WithContext returns a context that ends when the lease does; its cause is then the *LostError or
// ErrReleased. It also ends with parent, for parent's cause, and by the CancelFunc
// (context.Canceled).
//
// It carries the hold: a nested acquire of the same name under it returns ErrDeadlock, or joins the
// hold with Options.Reentrant. So a goroutine started under it counts as the holder. The CancelFunc
// frees the context's resources; the lease goes on.
func (le *Lease) WithContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	outer, _ := parent.Value(heldKey{}).(*heldList)
	held := context.WithValue(ctx, heldKey{}, &heldList{le, outer})
	return held, le.core.Bind(cancel)
}
