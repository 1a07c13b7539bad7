package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast"
)

// slow is how long taking, renewing and releasing a lock may take without a warning.
const slow = time.Second

// roundTrip takes, renews and releases a lock of its own.
func roundTrip(ctx context.Context, p Patient) []Finding {
	const check = "lock"
	bad := func(what string, err error) []Finding {
		return []Finding{{
			Check: check, Severity: Error, Found: fmt.Sprintf("%s%v", what, err),
			Risk: "no lock can be taken here", Remedy: "see the findings above, or the store's own log",
		}}
	}
	if p.Client == nil {
		findings := bad("", p.Err) // the error says that the store cannot be opened
		if p.URL.Host != "" {
			findings[0].Remedy = "see whether the server runs, whether the URL names it and this user, and whether this host can reach it; nothing else of it was seen"
		}
		return findings
	}
	start := time.Now()
	o := &holdfast.Options{Note: "holdfast doctor"}
	if p.Client.Caps().NoNotes {
		o = nil
	}
	lock := p.Client.Mutex("holdfast-doctor/"+rand.Text(), o)
	lease, err := lock.TryAcquire(ctx)
	if err != nil {
		return bad("a lock cannot be taken: ", err)
	}
	err = lease.Renew(ctx)
	if released := lease.Release(); err == nil {
		err = released
	}
	if err != nil {
		return bad("a lock cannot be kept and given back: ", err)
	}
	took := time.Since(start).Round(10 * time.Microsecond)
	f := Finding{Check: check, Severity: OK, Found: fmt.Sprintf("taking, renewing and giving "+
		"back a lock took %v", took)}
	if took > slow {
		f.Severity = Warning
		f.Risk = "renewals may be late, and locks with a short TTL lost"
		f.Remedy = "look for what slows the store or the way to it, and use long TTLs"
	}
	return []Finding{f}
}
