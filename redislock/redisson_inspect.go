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
	return one(r.inspect(ctx, name))
}

func (r redisson) inspect(ctx context.Context, names ...string) ([]driver.Info, error) {
	infos, _, err := r.look(ctx, names...)
	return infos, err
}

// look returns what is known of names, and whether each is a read-write lock.
func (r redisson) look(ctx context.Context, names ...string) (infos []driver.Info, rw []bool, err error) {
	if err := r.c.alive(ctx); err != nil {
		return nil, nil, err
	}
	infos, rw = make([]driver.Info, len(names)), make([]bool, len(names))
	var commands []Command
	var asked []int
	for i, name := range names {
		infos[i].Name = name
		if r.checkName(name) != nil {
			continue // it is no name of a lock
		}
		tag, _ := strings.CutSuffix(wire.Suffixed(name, ""), ":")
		commands = append(commands, redissonInspect.Command([]string{
			name, wire.PermitTimeouts(name), wire.FairQueue(name), wire.FairTimeouts(name), wire.Tokens(name),
		}, tag))
		asked = append(asked, i)
	}
	for n, reply := range r.c.shared.run(ctx, redissonInspect, commands...) {
		if reply.Err != nil {
			return nil, nil, Explain(reply.Err)
		}
		fields, _ := reply.Value.([]any)
		if len(fields) != 6 {
			return nil, nil, errUnexpected(reply.Value)
		}
		redissonInfo(&infos[asked[n]], fields)
		token := driver.Token(number(fields, 5))
		if holders := infos[asked[n]].Holders; r.mutex == fencedWay && len(holders) == 1 && token > 0 && token <= maxToken {
			holders[0].Token = token
		}
		rw[asked[n]] = str(fields, 0) == "rw"
	}
	return infos, rw, nil
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
	return r.c.list(ctx, prefix, literal.Replace(prefix)+"*", func(key string) (string, bool) {
		return key, driver.CheckName(key) == nil
	}, r.inspect)
}

// Break implements driver.Operator. The token is the number that Inspect shows. It breaks holds of Java too;
// Java is not told of it.
func (r redisson) Break(ctx context.Context, name string, token driver.Token) error {
	if err := r.checkName(name); err != nil {
		return err
	}
	infos, rw, err := r.look(ctx, name)
	if err != nil {
		return err
	}
	holders := infos[0].Holders
	i := slices.IndexFunc(holders, func(h driver.Holder) bool { return h.Token == token })
	if i < 0 {
		return driver.ErrNotHeld
	}
	h := &holders[i]
	g := driver.Grant{Request: driver.Request{
		Name: name, Owner: h.Owner, Mode: h.Mode, Permits: h.Permits, RW: rw[0],
	}}
	if r.mutex == fencedWay && token != numberOf(h) {
		return r.breakFenced(ctx, g, token, h.Expires+withdrawnFor)
	}
	if len(infos[0].Waiters) > 0 && r.mutex == lockWay {
		r.mutex = fairWay // its waiters have channels of their own
	}
	return r.free(ctx, r.c.shared, []driver.Grant{g}, replyBroken, func(*driver.Grant) time.Duration {
		return h.Expires + withdrawnFor
	})[0]
}

// breakFenced breaks the hold of an RFencedLock, of whose owner an earlier or a later hold has another token.
func (r redisson) breakFenced(ctx context.Context, g driver.Grant, token driver.Token, refused time.Duration) error {
	command := fencedBreak.Command(r.keys(fencedWay, &g.Request), fencedWay.holder(&g.Request), r.publish, millis(refused), decimal(int64(token)))
	return r.c.status(ctx, fencedBreak, command)
}
