package zklock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// A semaphore's permits are nodes below leases. Who wants some takes a place below locks first; the first
// there, and nobody else, counts the leases and makes its own. That is Curator's InterProcessSemaphoreV2.
// How many slots there are is the data of leases, which Curator leaves empty: it is written by who makes
// the first leases.

func (c *client) locks(name string) string  { return c.layout.path(name) + "/" + locksDir }
func (c *client) leases(name string) string { return c.layout.path(name) + "/" + leasesDir }

// createLease makes the node of one permit.
func (c *client) createLease(r *driver.Request, g guid) zk.Op {
	return zk.Create(c.leases(r.Name)+"/"+g.protected()+stemLease, []byte(r.Note), c.acl, zk.Ephemeral|zk.Sequential)
}

// checkPermits refuses more permits than one transaction makes (P10): beside them it has three other operations.
func (c *client) checkPermits(r *driver.Request) error {
	if r.Mode != driver.Slot {
		return nil
	}
	each := zk.SizeInMulti(c.createLease(r, guidOf(r.Owner)))
	if most := zk.MaxRequest/each - 3; r.Permits > most {
		return fmt.Errorf("%d permits at once: %w: of this name ZooKeeper takes %d in one transaction, of 1 MiB",
			r.Permits, driver.ErrUnsupported, most)
	}
	return nil
}

// createSlots takes a place below locks, and reads all that decides, in one round trip.
func (a *attempt) createSlots(ctx context.Context) error {
	locks, leases := a.c.locks(a.req.Name), a.c.leases(a.req.Name)
	path := a.c.layout.path(a.req.Name)
	replies, err := a.r.session.createIn(ctx, []string{path, locks, leases},
		zk.Create(locks+"/"+a.r.guid.protected()+stemLock, []byte(a.req.Note), a.c.acl, zk.Ephemeral|zk.Sequential),
		append(a.slotsOps(), zk.Children(path, nil))...,
	)
	if err := a.created(ctx, replies, err); err != nil {
		return err
	}
	if len(parseChildren(replies[len(replies)-1].Children).entries) > 0 {
		return a.takeBack(ctx, driver.ErrMismatch)
	}
	err = a.seeSlots(ctx, replies[1:])
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrUncertain):
		return err
	}
	return a.takeBack(ctx, err)
}

// slotsOps reads what decides over a place below locks.
func (a *attempt) slotsOps() []zk.Op {
	leases := a.c.leases(a.req.Name)
	return []zk.Op{zk.Children(a.c.locks(a.req.Name), nil), zk.Children(leases, nil), zk.GetData(leases, nil)}
}

// lookSlots reads it again.
func (a *attempt) lookSlots(ctx context.Context) error {
	s := a.r.session
	replies, err := s.refresh(ctx, a.freshSince(), a.slotsOps()...)
	if err != nil {
		return err
	}
	return a.seeSlots(ctx, replies)
}

// seeSlots takes in what slotsOps has read.
func (a *attempt) seeSlots(ctx context.Context, replies []zk.Reply) error {
	// Leases that are empty are removed by the server, even between the two reads of them. That says nothing
	// of the own place: who took it for gone would take another and leave this one behind, before everybody.
	if errors.Is(replies[1].Err, zk.NoNode) || errors.Is(replies[2].Err, zk.NoNode) {
		if err := a.r.session.makeParents(ctx, []string{a.c.leases(a.req.Name)}); err != nil {
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
		return driver.ErrMismatch
	}
	ahead, err := before(entries, lastElement(a.r.nodes[0]))
	if err != nil {
		return err
	}
	a.view = view{
		ahead: len(ahead), behind: len(ahead)+1 < len(entries), queued: len(entries),
		room: taken+a.req.Permits <= a.req.Slots, told: told, version: replies[2].Stat.Version,
	}
	switch {
	case len(ahead) > 0:
		a.view.blocker = parent(a.r.nodes[0]) + "/" + ahead[len(ahead)-1].name
	case !a.view.room:
		a.view.blocker, a.view.leases = a.c.leases(a.req.Name), true
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
func (a *attempt) settleSlots(ctx context.Context, claim bool) (driver.Grant, error) {
	leases := a.c.leases(a.req.Name)
	for a.view.blocker == "" {
		var ops []zk.Op
		if a.view.told != a.req.Slots {
			ops = append(ops, zk.SetData(leases, strconv.AppendInt(nil, int64(a.req.Slots), 10), a.view.version))
		}
		first := len(ops)
		for range a.req.Permits {
			ops = append(ops, a.c.createLease(a.req, a.r.guid))
		}
		ops = append(ops, zk.Delete(a.r.nodes[0], zk.AnyVersion))
		replies, err := a.r.session.do(ctx, zk.Multi(ops...))
		if err != nil {
			return driver.Grant{Request: *a.req}, a.uncertain(err)
		}
		made := &replies[0]
		if made.Err == nil {
			var paths []string
			for _, result := range made.Results[first : first+a.req.Permits] {
				paths = append(paths, result.Path)
			}
			a.c.mu.Lock()
			a.r.nodes = paths
			a.c.mu.Unlock()
			if a.r.token, err = tokenOf(made.Zxid); err != nil {
				return driver.Grant{Request: *a.req}, a.uncertain(err)
			}
			return a.hold(claim)
		}
		if !notDone(made.Err) {
			return driver.Grant{Request: *a.req}, a.uncertain(made.Err)
		}
		if !errors.Is(made.Err, zk.NoNode) && !errors.Is(made.Err, zk.BadVersion) {
			return driver.Grant{Request: *a.req}, a.takeBack(ctx, made.Err)
		}
		// The leases were removed by the server, the slots written by another, or the place was deleted.
		if err := a.lookSlots(ctx); err != nil {
			return driver.Grant{Request: *a.req}, a.takeBack(ctx, err)
		}
	}
	return driver.Grant{}, errBlocked
}

// refuseSlots takes back the place of a Try. Suppose that there are permits left, and that others ask at
// the same time: each is the first below locks for a moment only, which is waited for.
func (a *attempt) refuseSlots(ctx context.Context) (driver.Grant, error) {
	p := &place{watch: zk.NewWatch()}
	defer a.r.session.zk.Unwatch(p.watch)
	patience := time.NewTimer(tryPatience)
	defer patience.Stop()
	for a.view.room && !a.view.leases {
		p.blocker = a.view.blocker
		there, err := a.arm(ctx, p)
		if err == nil && there {
			select {
			case <-p.watch.C():
			case <-patience.C:
				return driver.Grant{}, a.takeBack(ctx, a.heldSlots())
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err == nil {
			err = a.lookSlots(ctx)
		}
		if err != nil {
			return driver.Grant{Request: *a.req}, a.takeBack(ctx, err)
		}
		if g, err := a.settleSlots(ctx, false); err != errBlocked {
			return g, err
		}
	}
	return driver.Grant{}, a.takeBack(ctx, a.heldSlots())
}

// tryPatience is how long a Try lets others finish who ask for permits that are free.
const tryPatience = 100 * time.Millisecond

func (a *attempt) heldSlots() error {
	return &driver.HeldError{Name: a.req.Name, Queued: max(0, a.view.queued-1)}
}

// adoptSlots goes on with nodes of a semaphore that were found again.
func (a *attempt) adoptSlots(ctx context.Context) (driver.Grant, error) {
	var leases []string
	for _, path := range a.r.nodes {
		if strings.HasPrefix(path, a.c.leases(a.req.Name)+"/") {
			leases = append(leases, path)
		}
	}
	if len(leases) == 0 {
		replies, err := a.r.session.do(ctx, zk.Children(a.c.layout.path(a.req.Name), nil))
		if err == nil {
			err = replies[0].Err
		}
		if err == nil && len(parseChildren(replies[0].Children).entries) > 0 {
			return driver.Grant{Request: *a.req}, a.takeBack(ctx, driver.ErrMismatch)
		}
		if err == nil {
			err = a.lookSlots(ctx)
		}
		if err != nil {
			return driver.Grant{Request: *a.req}, a.uncertain(err)
		}
		return a.settleSlots(ctx, false)
	}
	replies, err := a.r.session.do(ctx, zk.Exists(leases[0], nil))
	if err == nil {
		err = replies[0].Err
	}
	if err == nil {
		a.r.token, err = tokenOf(replies[0].Stat.Czxid)
	}
	if err != nil {
		return driver.Grant{Request: *a.req}, a.uncertain(err)
	}
	return a.hold(false)
}
