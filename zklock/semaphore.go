package zklock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// A semaphore's permits are nodes below leases. Who wants some takes a place below locks first; the first there, and
// nobody else, counts the leases and makes its own. That is Curator's InterProcessSemaphoreV2. How many slots there
// are is the data of leases, which Curator leaves empty: it is written by who makes the first leases.

// checkPermits refuses more permits than one transaction makes (P10).
func (c *client) checkPermits(r *driver.Request) error {
	if most := c.mostPermits(r); r.Mode == driver.Slot && r.Permits > most {
		return fmt.Errorf("%d permits at once: %w: of this name ZooKeeper takes %d in one transaction, of 1 MiB",
			r.Permits, driver.ErrUnsupported, most)
	}
	return nil
}

// mostPermits is how many permits one transaction makes. Each is a Create of less than 100 bytes beside the path of the
// leases and the note. The transaction has three other operations at most.
func (c *client) mostPermits(r *driver.Request) int {
	return zk.MaxRequest/(100+len(c.layout.leases(r.Name))+len(r.Note)) - 3
}

// createSlots takes a place below locks, and reads all that decides, in one round trip.
func (a *call) createSlots(ctx context.Context) error {
	l, name := &a.c.layout, a.req.Name
	replies, err := a.o.keeper.createIn(ctx, []string{l.path(name), l.locks(name), l.leases(name)},
		zk.Create(l.locks(name)+"/"+a.o.guid+stemLock, []byte(a.req.Note), a.c.acl, zk.Ephemeral|zk.Sequential),
		append(a.slotsOps(), zk.Children(l.path(name), nil))...,
	)
	if err := a.created(replies, err); err != nil {
		return err
	}
	if len(parseChildren(replies[len(replies)-1].Children).entries) > 0 {
		return a.takeBack(ctx, driver.ErrMismatch)
	}
	err = a.seeSlots(ctx, replies[1:])
	if err != nil && !errors.Is(err, driver.ErrUncertain) {
		return a.takeBack(ctx, err)
	}
	return err
}

// slotsOps reads what decides over a place below locks.
func (a *call) slotsOps() []zk.Op {
	leases := a.c.layout.leases(a.req.Name)
	return []zk.Op{zk.Children(a.c.layout.locks(a.req.Name), nil), zk.Children(leases, nil), zk.GetData(leases, nil)}
}

// lookSlots reads it again.
func (a *call) lookSlots(ctx context.Context) error {
	replies, err := a.o.keeper.refresh(ctx, a.freshSince(), a.slotsOps()...)
	if err != nil {
		return err
	}
	return a.seeSlots(ctx, replies)
}

// seeSlots takes in what slotsOps has read.
func (a *call) seeSlots(ctx context.Context, replies []zk.Reply) error {
	// The server removes leases that are empty, even between the two reads of them. That says nothing of the own
	// place: a client that took it for gone would take another and leave this one behind, before everybody.
	if errors.Is(replies[1].Err, zk.NoNode) || errors.Is(replies[2].Err, zk.NoNode) {
		made, err := a.o.keeper.do(ctx, a.o.keeper.containers(a.c.layout.leases(a.req.Name))...)
		if err = cmp.Or(err, unmade(made)); err != nil {
			return err
		}
		return a.lookSlots(ctx)
	}
	for i := range replies[:3] {
		if errors.Is(replies[i].Err, zk.NoNode) {
			return errGone
		}
		if replies[i].Err != nil {
			return replies[i].Err
		}
	}
	entries, taken := parseChildren(replies[0].Children).entries, len(parseChildren(replies[1].Children).entries)
	told := parseSlots(replies[2].Data)
	if told != 0 && told != a.req.Slots && taken > 0 {
		return driver.Mismatch(told, a.req.Slots)
	}
	ahead, err := before(entries, path.Base(a.o.nodes[0]))
	if err != nil {
		return err
	}
	a.view = view{
		ahead: len(ahead), behind: len(ahead)+1 < len(entries), queued: len(entries),
		room: taken+a.req.Permits <= a.req.Slots, told: told, version: replies[2].Stat.Version,
	}
	switch {
	case len(ahead) > 0:
		a.view.blocker = path.Dir(a.o.nodes[0]) + "/" + ahead[len(ahead)-1].name
	case !a.view.room:
		a.view.blocker, a.view.leases = a.c.layout.leases(a.req.Name), true
	}
	return nil
}

// parseSlots reads how many slots a semaphore has; 0: nobody has said so.
func parseSlots(data []byte) int {
	n, err := strconv.ParseInt(string(data), 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

// settleSlots makes the leases of the first place, and ends that place, in one transaction.
func (a *call) settleSlots(ctx context.Context, claim bool) error {
	for a.view.blocker == "" {
		var ops []zk.Op
		if a.view.told != a.req.Slots {
			ops = append(ops, zk.SetData(a.c.layout.leases(a.req.Name), strconv.AppendInt(nil, int64(a.req.Slots), 10), a.view.version))
		}
		first := len(ops)
		for range a.req.Permits {
			ops = append(ops, zk.Create(a.c.layout.leases(a.req.Name)+"/"+a.o.guid+stemLease, []byte(a.req.Note), a.c.acl, zk.Ephemeral|zk.Sequential))
		}
		made, err := a.o.keeper.one(ctx, zk.Multi(append(ops, zk.Delete(a.o.nodes[0], zk.AnyVersion))...))
		switch {
		case err == nil:
			var paths []string
			for _, result := range made.Results[first : first+a.req.Permits] {
				paths = append(paths, result.Path)
			}
			a.c.locked(func() { a.o.nodes = paths })
			a.o.token = driver.Token(made.Zxid)
			return a.hold(claim)
		case !notDone(err):
			return a.uncertain(err)
		case !errors.Is(err, zk.NoNode) && !errors.Is(err, zk.BadVersion):
			return a.takeBack(ctx, err)
		}
		// The leases were removed by the server, the slots written by another, or the place was deleted.
		if err := a.lookSlots(ctx); err != nil {
			return a.takeBack(ctx, err)
		}
	}
	return errBlocked
}

// tryPatience is how long a Try waits for the next of those before it who ask for permits that are free.
const tryPatience = 100 * time.Millisecond

// refuseSlots takes back the place of a Try. While there are permits left, others who ask at the same time are the
// first below locks for a moment only, which is waited for.
func (a *call) refuseSlots(ctx context.Context) error {
	ahead, end := a.view.ahead, time.Now().Add(tryPatience)
	for a.view.room && !a.view.leases && time.Now().Before(end) && pause.Sleep(ctx, tryPatience/20) {
		if err := a.lookSlots(ctx); err != nil {
			return a.takeBack(ctx, err)
		}
		if err := a.settleSlots(ctx, false); err != errBlocked {
			return err
		}
		if a.view.ahead < ahead {
			ahead, end = a.view.ahead, time.Now().Add(tryPatience)
		}
	}
	return a.takeBack(ctx, &driver.HeldError{Name: a.req.Name, Queued: max(0, a.view.queued-1)})
}
