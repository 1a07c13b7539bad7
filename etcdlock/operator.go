package etcdlock

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// Break implements driver.Operator. The token names one hold for ever, by the create revision of its key. If a
// renewal has changed the token on record since the operator saw it, nothing is broken (P4).
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	if token <= 0 {
		return driver.ErrNotHeld
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	dir, created := c.layout.Dir(name), c.layout.Created(token)
	for {
		read := table.InOrder(table.Read(dir), etcdserverpb.RangeRequest_ASCEND)
		read.MaxCreateRevision = created
		resp, err := c.main.get(ctx, read)
		if err != nil {
			return err
		}
		entries := c.layout.ParseEntries(dir, resp.Kvs)
		last := len(entries) - 1
		if last < 0 || c.layout.TokenOf(&entries[last]) != token || entries[last].Value.Closed || table.Holders(entries) <= last {
			return driver.ErrNotHeld
		}
		e := entries[last]
		marker, lease := "", clientv3.LeaseID(0)
		if e.Ours {
			lease, err = c.tombstoneLease(ctx)
			switch {
			case err == nil:
				marker = c.layout.BrokenHold(e.Value.Client, created)
			case !errors.Is(err, rpctypes.ErrNoSpace): // then its holder is told later, and only that it is gone
				return err
			}
		}
		done, err := c.main.txn(ctx, table.Break(&e, marker, "", lease))
		c.misses(err)
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) && (err != nil || done.Succeeded) {
			return err
		}
		// The hold has ended, its value or lease was changed, or the lease of tombstones has ended: read again.
	}
}

// listen watches for holds of this client that operators break. It is called when holds
// are renewed: shorter ones do not need it.
func (c *client) listen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breaks != nil || c.isClosed {
		return
	}
	dir := c.layout.BrokenDir(c.id)
	c.breaks = c.watchLocked(dirSpan(dir, true), func(resp *etcdserverpb.WatchResponse) {
		if resp == nil { // until the next renewal, which tells what was missed
			c.breaks = nil
		}
		for _, e := range resp.GetEvents() {
			created, err := strconv.ParseInt(strings.TrimPrefix(string(e.Kv.Key), dir), 10, 64)
			for r := range c.records.all() {
				if err == nil && r.created == created && e.Type == mvccpb.Event_PUT {
					c.tellLocked(driver.Loss{Owners: []string{r.owner}, Err: driver.ErrBroken})
				}
			}
		}
	})
}

// tellLocked passes a loss on, if the channel has room: the next renewal tells it again.
func (c *client) tellLocked(loss driver.Loss) {
	if c.isClosed {
		return
	}
	select {
	case c.losses <- loss:
	default:
	}
}

// Losses implements driver.Notifier.
func (c *client) Losses() <-chan driver.Loss { return c.losses }

// Inspect implements driver.Operator. Etcd keeps no time with its keys: since
// when a hold is held, and a place is waited at, is by the clock of its client.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Info{}, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	dir := c.layout.Dir(name)
	resp, err := c.main.get(ctx, table.InOrder(table.Read(dir), etcdserverpb.RangeRequest_ASCEND))
	if err != nil {
		return driver.Info{}, err
	}
	return c.info(ctx, name, c.layout.ParseEntries(dir, resp.Kvs), map[int64]time.Duration{})
}

// info describes a name by its entries, in the order of their creation. It asks
// how long leases last, and keeps that in left.
func (c *client) info(ctx context.Context, name string, entries []table.Entry, left map[int64]time.Duration) (driver.Info, error) {
	info := driver.Info{Name: name}
	hold := table.Holders(entries)
	for i, e := range entries {
		info.Slots = max(info.Slots, e.Value.Slots)
		if i >= hold {
			info.Waiters = append(info.Waiters, driver.Waiter{
				Owner: e.Owner(), Mode: e.Mode, Permits: e.Value.Permits, Note: e.Value.Note, Waiting: e.Age(),
			})
			continue
		}
		rest, err := c.left(ctx, e.Lease, left)
		if err != nil {
			return driver.Info{}, err
		}
		if e.Value.Closed {
			info.ClosedFor = max(info.ClosedFor, min(rest, e.ClosesIn()))
			continue
		}
		info.Holders = append(info.Holders, driver.Holder{
			Owner: e.Owner(), Mode: e.Mode, Permits: e.Value.Permits, Token: c.layout.TokenOf(&e), Note: e.Value.Note,
			Held: e.Age(), Expires: max(rest-e.Delay(), 0),
		})
	}
	return info, nil
}

// left returns for how long a lease lasts unless it is kept alive; 0 if it has ended, or there is none.
func (c *client) left(ctx context.Context, lease int64, known map[int64]time.Duration) (time.Duration, error) {
	if rest, ok := known[lease]; ok || lease == 0 {
		return rest, nil
	}
	resp, err := c.main.leases.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, ended(ctx, err)
	}
	if err == nil {
		known[lease] = time.Duration(max(resp.TTL+1, 0)) * time.Second // etcd rounds down
	}
	return known[lease], nil
}

// pageSize is how many keys List reads at once.
const pageSize = 1000

// List implements driver.Operator.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		names, err := c.scan(ctx, prefix)
		left := map[int64]time.Duration{}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			entries := names[name]
			slices.SortFunc(entries, func(a, b table.Entry) int { return int(a.Created - b.Created) })
			var info driver.Info
			bounded, cancel := c.bounded(ctx)
			info, err = c.info(bounded, name, entries, left)
			cancel()
			if err != nil || !info.Idle() && !yield(info, nil) {
				break
			}
		}
		if err != nil {
			yield(driver.Info{}, err)
		}
	}
}

// scan reads all entries of names that begin with prefix, page by page.
func (c *client) scan(ctx context.Context, prefix string) (map[string][]table.Entry, error) {
	names := map[string][]table.Entry{}
	page := table.Read(c.layout.Name(prefix))
	if page.Limit = pageSize; len(page.Key) == 0 {
		page.Key, page.RangeEnd = []byte{0}, []byte{0} // from the first key on
	}
	for {
		if err := c.alive(ctx); err != nil {
			return nil, err
		}
		bounded, cancel := c.bounded(ctx)
		resp, err := c.main.get(bounded, page)
		cancel()
		if err != nil {
			return nil, err
		}
		for _, kv := range resp.Kvs {
			e := table.ParseEntry(kv)
			if name, _, ok := c.layout.Split(e.Key, e.Lease, e.Ours); ok && strings.HasPrefix(name, prefix) {
				names[name] = append(names[name], e)
			}
		}
		if !resp.More {
			return names, nil
		}
		page.Key = append(resp.Kvs[len(resp.Kvs)-1].Key, 0)
	}
}
