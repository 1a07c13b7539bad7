package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Forgotten: P1: a server that may have forgotten holds grants nothing, neither by the statement that takes a free name,
// nor by a step, nor by a release for which others wait, nor when a hold lapses. Holds that it knows are renewed and
// released, and it grants again once the longest TTL is over. Open opens drivers with that longest TTL; db is a pool of
// their database.
func Forgotten(t *testing.T, db *sql.DB, open func(longest time.Duration) driver.Driver) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := open(time.Hour).(fullDriver)
	defer func() { d.Close() }()
	write := func(value string) { Exec(t, db, "UPDATE holdfast_meta SET value = '"+value+"' WHERE name = 'life'") }
	var value string
	must(t, db.QueryRowContext(ctx, "SELECT value FROM holdfast_meta WHERE name = 'life'").Scan(&value))
	present := strings.Fields(value)
	written := func(opens time.Time) string { return fmt.Sprint(present[0], " ", opens.UnixMicro(), " ", present[2]) }
	// A client relies on what it has read for half of the longest TTL, so another one goes on, which has read otherwise.
	remember := func(value string) {
		d.Close()
		write(written(time.Now().Add(50 * time.Minute)))
		d = open(time.Hour).(fullDriver)
		write(value)
	}

	grants := 0
	request := func(name string) driver.Request {
		grants++
		return driver.Request{Name: name, Owner: fmt.Sprintf("%s %s %d", t.Name(), name, grants), TTL: 10 * time.Minute}
	}
	try := func(name string) driver.Grant {
		g, err := d.Try(ctx, request(name))
		must(t, err)
		return g
	}
	refused := func(how string, err error) {
		t.Helper()
		held, _ := errors.AsType[*driver.HeldError](err)
		if held == nil || held.Forgotten < 30*time.Minute || held.Forgotten > 61*time.Minute {
			t.Errorf("P1: %s: %+v, %v", how, held, err)
		}
	}
	waiting := func(name string) driver.Request {
		r := request(name)
		if _, err := d.Enqueue(ctx, r); !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("%s: a place is not given: %v", name, err)
		}
		return r
	}
	waits := func(how, name string) {
		t.Helper()
		info, err := d.Inspect(ctx, name)
		if err != nil || len(info.Holders) > 0 || len(info.Waiters) != 1 {
			t.Errorf("P1: %s: %+v, %v", how, info, err)
		}
	}
	for i, row := range []struct{ says, value string }{
		{"another life", "other 1 1000"}, {"that the store opens later", written(time.Now().Add(50 * time.Minute))},
	} {
		n := fmt.Sprint("/", i)
		free, kept, lapsing := try("free"+n), try("kept"+n), try("lapsing"+n)
		must(t, d.Release(ctx, []driver.Grant{free})[0])
		queued, steps := []driver.Grant{try("queued" + n), try("steps" + n)}, request("new"+n)
		steps.MinHold = time.Second
		next := []driver.Request{waiting("queued" + n), waiting("steps" + n), waiting("lapsing" + n)}
		for how, req := range map[string]driver.Request{"a free name": request("free" + n), "a new name": request("never" + n), "a minimum hold": steps} {
			remember(row.value)
			_, err := d.Try(ctx, req)
			refused("the row says "+row.says+": "+how, err)
		}
		remember(row.value)
		if err := d.Release(ctx, queued[:1])[0]; err != nil {
			t.Errorf("P9: the row says %s: release: %v", row.says, err)
		}
		waits("the row says "+row.says+": a release", "queued"+n)
		queued[1].MinHold = time.Microsecond // no plain hold
		remember(row.value)
		if err := d.Release(ctx, queued[1:])[0]; err != nil {
			t.Errorf("P9: the row says %s: release by a step: %v", row.says, err)
		}
		waits("the row says "+row.says+": a step", "steps"+n)
		remember(row.value)
		Exec(t, db, "UPDATE holdfast_locks SET expires = 1 WHERE name = 'lapsing"+n+"'")
		waits("the row says "+row.says+": a lapse", "lapsing"+n)
		if r := d.Renew(ctx, []driver.Grant{kept, lapsing}); r[0].Err != nil || !errors.Is(r[1].Err, driver.ErrNotHeld) {
			t.Errorf("P2: the row says %s: renewals: %+v", row.says, r)
		}
		remember(written(time.Now().Add(-time.Second))) // it opens
		for _, r := range next {
			for g, err := d.Enqueue(ctx, r); ; g, err = d.Enqueue(ctx, r) {
				if err == nil {
					must(t, d.Release(ctx, []driver.Grant{g})[0])
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("P7: the store has opened, and %s is not granted: %v", r.Name, err)
				}
			}
		}
		must(t, d.Release(ctx, []driver.Grant{kept, try("free" + n)})...)
	}
	if _, err := d.Try(ctx, driver.Request{Name: "long", Owner: t.Name(), TTL: time.Hour, LockDelay: 1}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a hold that outlasts the longest TTL: %v", err)
	}

	// A client relies on what it has read for half of its own longest TTL, by the server's clock, and for no longer.
	relying := open(2 * time.Second).(fullDriver)
	defer relying.Close()
	brief := func(name, owner string) driver.Request {
		return driver.Request{Name: name, Owner: owner, TTL: 2 * time.Second}
	}
	first, err := relying.Try(ctx, brief("passed", "first"))
	must(t, err)
	if _, err := relying.Enqueue(ctx, brief("passed", "second")); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("a place is not given: %v", err)
	}
	free, err := relying.Try(ctx, brief("taken", "first"))
	must(t, err)
	must(t, relying.Release(ctx, []driver.Grant{free})[0])
	write(written(time.Now().Add(50 * time.Minute)))
	time.Sleep(time.Second + time.Millisecond)
	if err := relying.Release(ctx, []driver.Grant{first})[0]; err != nil && !driver.Gone(err) {
		t.Errorf("P9: a release: %v", err)
	}
	waits("a client that has read for too long that the store is open releases", "passed")
	_, err = relying.Try(ctx, brief("taken", "second"))
	refused("a client that has read for too long that the store is open", err)

	// The wait ends by itself, and is no longer than the longest TTL of the clients that the store remembers.
	write("other 1 50000")
	short := open(100 * time.Millisecond)
	defer short.Close()
	for {
		_, err := short.Try(ctx, driver.Request{Name: "soon", Owner: "o", TTL: 50 * time.Millisecond})
		if err == nil {
			break
		}
		if held, _ := errors.AsType[*driver.HeldError](err); held == nil || held.Forgotten > 104*time.Millisecond {
			t.Fatalf("a store that has begun another life: %v", err)
		}
	}
}
