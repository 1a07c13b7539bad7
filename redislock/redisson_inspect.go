package redislock

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/holdnumber"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

var (
	redissonInspect = redissonScript("inspect")
	fencedBreak     = redissonScript("fenced_break")
)

// Inspect implements driver.Operator. It shows the holds of Java too: their owners as Redisson writes them,
// and of a permit its id, also in the notes, which are all that operators see; and the waiters of a fair lock, in
// their order. How old a hold is, is not on the wire.
func (r redisson) Inspect(ctx context.Context, name string) (driver.Info, error) {
	if r.checkName(name) != nil {
		return driver.Info{Name: name}, r.alive(ctx) // it is no name of a lock
	}
	return one(r.inspect(ctx, name))
}

func (r redisson) inspect(ctx context.Context, names ...string) ([]driver.Info, error) {
	return r.look(ctx, redissonInspect, names, redissonShown, r.read)
}

// redissonShown returns the keys that show a name.
func redissonShown(name string) []string {
	return []string{name, wire.PermitTimeouts(name), wire.FairQueue(name), wire.FairTimeouts(name), wire.Tokens(name)}
}

// read reads a reply of inspect.lua, and reports whether it is one.
func (r redisson) read(info *driver.Info, fields []any) bool {
	if len(fields) != 6 {
		return false
	}
	redissonInfo(info, fields)
	token := driver.Token(number(fields, 5))
	if r.mutex == fencedWay && len(info.Holders) == 1 && token > 0 && token <= maxToken {
		info.Holders[0].Token = token
	}
	return true
}

// redissonInfo adds a reply of inspect.lua to what is known of a name.
func redissonInfo(info *driver.Info, fields []any) {
	for _, item := range list(fields, 4) {
		place, _ := item.([]any)
		if owner := str(place, 0); wire.IsOwner(owner) && number(place, 1) > 0 {
			info.Waiters = append(info.Waiters, driver.Waiter{Owner: wire.Shown(owner), Note: noteOf(owner, 1)})
		}
	}
	switch kind := str(fields, 0); kind {
	case "permits":
		permitInfo(info, fields)
	case "lock", "rw":
		for _, item := range list(fields, 3) {
			h, _ := item.([]any)
			owner, writes := strings.CutSuffix(str(h, 0), writerSuffix)
			if !wire.IsOwner(owner) || kind == "lock" && (writes || len(list(fields, 3)) != 1) {
				continue // it is no lock, but other data
			}
			held := driver.Holder{Owner: wire.Shown(owner), Note: noteOf(owner, number(h, 1)), Expires: rest(number(fields, 1))}
			if kind == "rw" && !writes {
				held.Mode = driver.Shared
				if number(h, 2) < 0 {
					continue // its hold has ended, though the hash is there for another's
				}
				held.Expires = min(held.Expires, rest(number(h, 2)))
			}
			held.Token = numberOf(&held)
			info.Holders = append(info.Holders, held)
		}
	}
}

// noteOf says whose an owner is, for operators: which client of Redisson's, and which of its threads. Of Holdfast's
// owners there is nothing to say: nobody knows them. A thread may have its hold several times.
func noteOf(owner string, times int64) string {
	client, thread, _ := strings.Cut(owner, ":")
	if thread == wire.NoThread {
		return "Holdfast"
	}
	note := "Redisson " + client + ", thread " + thread
	if times > 1 {
		note += fmt.Sprintf(", %d times", times)
	}
	return note
}

// numberOf returns the number by which operators name a hold that has no token. A thread of Java may have both halves
// of a read-write lock; whatever it holds, and however often, the number of each is always the same.
func numberOf(h *driver.Holder) driver.Token { return holdnumber.Of(h.Owner + " " + h.Mode.String()) }

// permitInfo adds the holders of permits. Those that have ended are free, though nobody may have given them
// back yet.
func permitInfo(info *driver.Info, fields []any) {
	var ids []string
	lasts := map[string]int64{}
	for _, item := range list(fields, 3) {
		permit, _ := item.([]any)
		if ms := number(permit, 1); ms > 0 {
			ids = append(ids, str(permit, 0))
			lasts[str(permit, 0)] = ms
		}
	}
	if len(ids) == 0 {
		return
	}
	info.Slots = int(number(fields, 2)) + len(list(fields, 3))
	for first, all := range wire.Permits(ids) {
		owner := hex.EncodeToString([]byte(first))
		held := driver.Holder{
			Owner: owner, Note: "permit " + owner, Mode: driver.Slot, Permits: len(all), Expires: rest(lasts[first]),
		}
		held.Token = numberOf(&held)
		info.Holders = append(info.Holders, held)
	}
	slices.SortFunc(info.Holders, func(a, b driver.Holder) int { return cmp.Compare(a.Owner, b.Owner) })
}

// List implements driver.Operator. It shows what looks like a lock of Redisson's under a name. To find it, it
// looks at all keys that begin with the prefix.
func (r redisson) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return r.list(ctx, prefix, literal.Replace(prefix)+"*", func(key string) (string, bool) {
		return key, cmp.Or(driver.CheckName(key), r.checkName(key)) == nil
	}, r.inspect)
}

// Break implements driver.Operator. The token is the number that Inspect shows. It breaks holds of Java too;
// Java is not told of it.
func (r redisson) Break(ctx context.Context, name string, token driver.Token) error {
	if err := r.checkName(name); err != nil {
		return err
	}
	rw := false
	info, err := one(r.look(ctx, redissonInspect, []string{name}, redissonShown, func(info *driver.Info, fields []any) bool {
		rw = str(fields, 0) == "rw"
		return r.read(info, fields)
	}))
	if err != nil {
		return err
	}
	holders := info.Holders
	i := slices.IndexFunc(holders, func(h driver.Holder) bool { return h.Token == token })
	if i < 0 {
		return driver.ErrNotHeld
	}
	h := &holders[i]
	g := driver.Grant{Request: driver.Request{
		Name: name, Owner: h.Owner, Mode: h.Mode, Permits: h.Permits, RW: rw,
	}}
	if r.mutex == fencedWay && token != numberOf(h) {
		return r.breakFenced(ctx, g, token, h.Expires+withdrawnFor)
	}
	if len(info.Waiters) > 0 && r.mutex == lockWay {
		r.mutex = fairWay // its waiters have channels of their own
	}
	return r.free(ctx, r.shared, []driver.Grant{g}, replyBroken, func(*driver.Grant) time.Duration {
		return h.Expires + withdrawnFor
	})[0]
}

// breakFenced breaks the hold of an RFencedLock, of whose owner an earlier or a later hold has another token.
func (r redisson) breakFenced(ctx context.Context, g driver.Grant, token driver.Token, refused time.Duration) error {
	command := fencedBreak.Command(r.keys(fencedWay, &g.Request), fencedWay.holder(&g.Request), r.publish, millis(refused), decimal(int64(token)))
	return r.status(ctx, fencedBreak, command)
}
