//go:build soak

package faulttest

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/celllock"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest/faults"
	"github.com/holdfastlock/holdfast/fence"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// guarantee is what the driver says of a fault, and what shows it.
type guarantee struct {
	exclusion, tokens driver.Effect
	show              func(*testing.T)
}

var shown = map[driver.Fault]guarantee{
	driver.ClientCrash:   {driver.Keeps, driver.Keeps, clientCrash},
	driver.ClientPause:   {driver.Breaks, driver.Keeps, clientPause},
	driver.ClientSuspend: {driver.Keeps, driver.Keeps, clientSuspend},
	driver.Partition:     {driver.Keeps, driver.Keeps, func(t *testing.T) { cutOff(t, (*chaos.Proxy).Cut) }},
	driver.LateReplies:   {driver.Keeps, driver.Keeps, func(t *testing.T) { cutOff(t, (*chaos.Proxy).HoldReplies) }},
	driver.StorePause:    {driver.Delays, driver.Keeps, storePause},
	driver.StoreRestart:  {driver.Delays, driver.Keeps, storeRestart},
	driver.StoreWiped:    {driver.Breaks, driver.Breaks, storeWiped},
	driver.Failover:      {driver.Delays, driver.Keeps, failover},
	driver.ClockForward:  {driver.Keeps, driver.Keeps, func(t *testing.T) { clockSet(t, time.Hour) }},
	driver.ClockBack:     {driver.Keeps, driver.Keeps, func(t *testing.T) { clockSet(t, -time.Hour) }},
	driver.DiskFull:      {driver.Keeps, driver.Keeps, diskFull},
}

// TestGuarantees shows of each fault that what the driver says of it is so, whether it says that the fault
// breaks something or that it does not.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	server := testserver.StartCell(t, testserver.CellOptions{Election: quick})
	says := client(t, server.Addrs()).Caps().Guarantees.Faults
	for _, fault := range driver.Faults() {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			is := shown[fault]
			if v := says[fault]; v.Exclusion != is.exclusion || v.Tokens != is.tokens {
				t.Errorf("the driver says: exclusion %v, tokens %v; this shows %v, %v", v.Exclusion, v.Tokens, is.exclusion, is.tokens)
			}
			is.show(t)
		})
	}
}

// brief is the TTL of holds that are to expire.
const brief = time.Second

func one(t testing.TB) *testserver.Cell {
	return testserver.StartCell(t, testserver.CellOptions{Election: quick})
}

// watch watches a lease until it is lost or the test ends.
func watch(t testing.TB, lease *holdfast.Lease) <-chan faults.Hold {
	watched := make(chan faults.Hold, 1)
	go func() { watched <- faults.Watch(lease, t.Context().Done(), nil) }()
	return watched
}

// next asserts that the name of a hold that is over opens, not before its holder has stopped trusting it
// (P1), and with a higher token (P3).
func next(t *testing.T, c *holdfast.Client, before *holdfast.Lease, watched <-chan faults.Hold) {
	t.Helper()
	after := acquire(t, c, before.Name(), &holdfast.Options{TTL: brief})
	at := driver.HostClock.Now()
	if hold := <-watched; hold.Lost == "" || hold.Until > at || hold.Late > 0 {
		t.Errorf("P1: the holder trusted its lease for %v beside the next one; late %v, lost: %q", hold.Until.Sub(at), hold.Late, hold.Lost)
	}
	if after.Token() <= before.Token() {
		t.Errorf("P3: token %d comes after %d", after.Token(), before.Token())
	}
	if err := after.Release(); err != nil {
		t.Error(err)
	}
}

// held asserts that a lease stands, and that another client, if there is one, does not get its name.
func held(t *testing.T, lease *holdfast.Lease, other *holdfast.Client) {
	t.Helper()
	ctx := within(t)
	err := lease.Renew(ctx)
	for err != nil && lease.Err() == nil && ctx.Err() == nil { // its connection must be made anew
		time.Sleep(10 * time.Millisecond)
		err = lease.Renew(ctx)
	}
	if err != nil {
		t.Errorf("P2: a lease is not renewed: %v", err)
	}
	if other == nil {
		return
	}
	if got, err := other.Mutex(lease.Name(), nil).TryAcquire(ctx); !isHeld(err) {
		t.Errorf("P1: another client asks for a name that is held: %v, %v", got, err)
	}
}

// clientCrash: the name of a holder whose process is killed stays closed at first, and opens later.
func clientCrash(t *testing.T) {
	c := one(t)
	p := startProcess(t, settings{URL: url(c.Addrs()), Group: "x", Keepers: 1, KeptTTL: 2 * brief, LockDelay: 2 * brief})
	before := (&crowd{TB: t, processes: []*process{p}}).answers()[0]
	p.kill()
	other := client(t, c.Addrs())
	if got, err := other.Mutex(before.Name, nil).TryAcquire(within(t)); !isHeld(err) {
		t.Errorf("P1: another client asks for the name of a holder that has just died: %v, %v", got, err)
	}
	if after := acquire(t, other, before.Name, nil); after.Token() <= before.Token {
		t.Errorf("P3: token %d comes after %d", after.Token(), before.Token)
	}
}

func clientPause(t *testing.T) {
	c := one(t)
	first := acquire(t, client(t, c.Addrs()), "x", &holdfast.Options{TTL: brief, RenewEvery: -1})
	second := acquire(t, client(t, c.Addrs()), "x", nil)
	// Whoever stood still, and does not look at its lease, acts now. Nothing but a guard stops it.
	if second.Err() != nil || !errors.Is(first.Err(), holdfast.ErrLost) {
		t.Errorf("the second holder is not there, or the first would know if it looked: %v, %v", second.Err(), first.Err())
	}
	var guard fence.Gate
	if err := guard.Admit(second.Token(), holdfast.Exclusive); err != nil {
		t.Error(err)
	}
	if err := guard.Admit(first.Token(), holdfast.Exclusive); !errors.Is(err, fence.ErrStale) {
		t.Errorf("P3: the guard let the first holder in: %v", err)
	}
}

// sleepy is a clock that goes on while the host sleeps.
type sleepy struct{ slept atomic.Int64 }

func (s *sleepy) Now() driver.Instant {
	return driver.HostClock.Now().Add(time.Duration(s.slept.Load()))
}

// clientSuspend: a host that sleeps as long as the TTL wakes up with a lease that is lost.
func clientSuspend(t *testing.T) {
	c, clock := one(t), &sleepy{}
	of, err := cell.New(cell.Config{Members: []string{c.Addrs()}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	d, err := celllock.New(within(t), of, nil)
	if err != nil {
		t.Fatal(err)
	}
	suspended, err := holdfast.New(d, &holdfast.ClientOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer suspended.Close()
	lease := acquire(t, suspended, "x", &holdfast.Options{TTL: 10 * time.Second})
	if err := lease.Err(); err != nil {
		t.Fatal(err)
	}
	clock.slept.Store(int64(10 * time.Second))
	if err := lease.Err(); !errors.Is(err, holdfast.ErrLost) {
		t.Errorf("P2: after a sleep as long as its TTL a lease says %v", err)
	}
}

// cutOff cuts one holder off from a cell.
func cutOff(t *testing.T, spoil func(*chaos.Proxy)) {
	c := one(t)
	link := chaos.StartProxy(t, c.Addrs())
	first := acquire(t, client(t, link.Addr), "x", &holdfast.Options{TTL: brief})
	watched := watch(t, first)
	spoil(link)
	next(t, client(t, c.Addrs()), first, watched)
	link.Heal()
}

func storePause(t *testing.T) {
	c := one(t)
	first, other := acquire(t, client(t, c.Addrs()), "x", &holdfast.Options{TTL: brief}), client(t, c.Addrs())
	watched := watch(t, first)
	c.Members[0].Pause()
	<-first.Done() // by its own clock
	c.Members[0].Resume()
	next(t, other, first, watched)
}

func storeRestart(t *testing.T) {
	c := one(t)
	lease, other := acquire(t, client(t, c.Addrs()), "x", &holdfast.Options{TTL: keptTTL}), client(t, c.Addrs())
	c.Members[0].Kill()
	c.Members[0].Start()
	held(t, lease, other)
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if after := acquire(t, other, "x", nil); after.Token() <= lease.Token() {
		t.Errorf("P3: token %d comes after %d", after.Token(), lease.Token())
	}
}

// storeWiped: a cell that comes back without its data knows no hold, and a holder that does not hear of that
// at once trusts its lease.
func storeWiped(t *testing.T) {
	c := one(t)
	link := chaos.StartProxy(t, c.Addrs())
	used := client(t, link.Addr)
	for range 20 { // or the first token of the cell that is made anew might be as high
		if err := acquire(t, used, "y", nil).Release(); err != nil {
			t.Fatal(err)
		}
	}
	first := acquire(t, used, "x", &holdfast.Options{TTL: keptTTL, RenewEvery: -1})
	link.Cut()
	defer link.Heal()
	c.Members[0].Wipe()
	second := acquire(t, client(t, c.Addrs()), "x", nil)
	if first.Err() != nil || second.Err() != nil {
		t.Errorf("the driver says that this breaks exclusion, and it did not: %v, %v", first.Err(), second.Err())
	}
	if second.Token() > first.Token() {
		t.Errorf("the driver says that this breaks the order of tokens, and %d came after %d", second.Token(), first.Token())
	}
}

func failover(t *testing.T) {
	c := testserver.StartCell(t, testserver.CellOptions{Members: 3, Election: quick})
	lease, other := acquire(t, client(t, c.Addrs()), "x", &holdfast.Options{TTL: keptTTL}), client(t, c.Addrs())
	leader := c.Leader()
	leader.Kill()
	c.NewLeader(leader)
	held(t, lease, other)
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if after := acquire(t, other, "x", nil); after.Token() <= lease.Token() {
		t.Errorf("P3: token %d comes after %d", after.Token(), lease.Token())
	}
}

// diskFull: below the reserve what is there is kept alive and given back, and nobody gets anything new. A
// member that cannot write at all ends itself.
func diskFull(t *testing.T) {
	c := one(t)
	holder, other := client(t, c.Addrs()), client(t, c.Addrs())
	kept := acquire(t, holder, "x", &holdfast.Options{TTL: keptTTL})
	given := acquire(t, holder, "y", &holdfast.Options{TTL: keptTTL})
	m := c.Members[0]
	m.FillDisk()
	go holder.Mutex("z", nil).TryAcquire(within(t)) // what is written shows that nothing can be
	m.AwaitEnd()
	m.StartWith("--reserve", "1000000000") // MiB: more than any disk has
	held(t, kept, nil)
	if err := given.Release(); err != nil {
		t.Errorf("P4: giving back below the reserve: %v", err)
	}
	for _, name := range []string{"x", "y", "z"} {
		if got, err := other.Mutex(name, nil).TryAcquire(within(t)); err == nil {
			t.Errorf("below the reserve somebody asks for %s: %v, %v", name, got, err)
		}
	}
	m.Kill()
	m.StartWith("--reserve", "0")
	if after := acquire(t, other, "y", nil); after.Token() <= given.Token() {
		t.Errorf("P3: token %d comes after %d", after.Token(), given.Token())
	}
	held(t, kept, other)
}

// clockSet sets the member's wall clock, by which nothing goes.
func clockSet(t *testing.T, by time.Duration) {
	c := testserver.StartCell(t, testserver.CellOptions{Election: quick, Clock: true})
	lease, other := acquire(t, client(t, c.Addrs()), "x", &holdfast.Options{TTL: keptTTL}), client(t, c.Addrs())
	dead := acquire(t, other, "dead", &holdfast.Options{TTL: brief, RenewEvery: -1, LockDelay: long})
	if got := time.Until(c.Members[0].SetWallClock(by)); (got - by).Abs() > time.Minute {
		t.Errorf("the clock shows %v, not %v more than the host's", got, by)
	}
	<-dead.Done()
	time.Sleep(2 * brief)
	held(t, lease, other)
	if got, err := client(t, c.Addrs()).Mutex("dead", nil).TryAcquire(within(t)); !isHeld(err) {
		t.Errorf("P5: a lock-delay ended when the clock was set: %v, %v", got, err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if after := acquire(t, other, "x", nil); after.Token() <= lease.Token() {
		t.Errorf("P3: token %d comes after %d", after.Token(), lease.Token())
	}
}
