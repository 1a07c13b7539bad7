package redislock

import (
	"cmp"
	"context"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/life"
	"github.com/holdfastlock/holdfast/redislock/internal/slot"
)

// setnx is the driver of the layout SetNX. The lock is a string at the bare name, and whoever has set
// it by SET NX PX has the name, in whatever language. Beside it are a record, for tokens and for what
// operators see, and tombstones for requests that were withdrawn (P6): of these other programs know
// nothing.
//
// A release and a renewal compare the value first, in a script. So they change nothing if the hold has
// expired and a stranger has the name, and they expect the same of the stranger.
type setnx struct{ *link }

var (
	setnxTake    = lifeScriptOf(lua("clock", "life", "setnx", "setnx_take"))
	setnxRenew   = scriptOf(lua("clock", "setnx", "setnx_renew"))
	setnxRelease = scriptOf(lua("clock", "setnx", "setnx_release"))
	setnxBreak   = scriptOf(lua("clock", "setnx", "setnx_break"))
	setnxInspect = scriptOf(lua("clock", "setnx", "setnx_inspect"))
)

// setnxPoll is the longest pause between two polls of a waiter, unless Options.Poll says another.
// Nobody tells a waiter that the name is free.
const setnxPoll = 100 * time.Millisecond

// setnxCaps are the abilities of the layout, of those of Redis.
func setnxCaps(caps driver.Caps) driver.Caps {
	caps.Store += "-setnx"
	caps.Fencing, caps.Shared, caps.Slots, caps.Fair = false, false, false, false
	caps.TokenBlock = 0
	if caps.Poll == 0 {
		caps.Poll = setnxPoll
	}
	caps.Guarantees = setnxGuarantees(caps.Guarantees)
	return caps
}

// setnxKeys returns the keys of a name and an owner: see setnx.lua.
func (l layout) setnxKeys(name, owner string) []string {
	record := l.setnxRecord(name)
	return []string{name, record, record + ":" + escape(owner)}
}

// setnxRecord returns the key of the record of a name. It has the hash slot that the bare name has.
func (l layout) setnxRecord(name string) string {
	escaped := escaper.Replace(name)
	if escaped == name {
		return l.record(name) + setnxSuffix
	}
	return l.prefix + ":{" + slot.TagLike(name) + "}:" + escaped + setnxSuffix
}

// setnxName returns the name whose record the key is, if it is one.
func (l layout) setnxName(key string) (string, bool) {
	text, _ := strings.CutSuffix(key, setnxSuffix)
	name, escaped, _ := strings.Cut(strings.TrimPrefix(text, l.prefix+":{"), "}")
	if escaped != "" {
		name = unescaper.Replace(strings.TrimPrefix(escaped, ":"))
	}
	return name, key == l.setnxRecord(name)
}

// setnxSuffix is what the key of a record ends with, after the key of the name.
const setnxSuffix = ":setnx"

// Try implements driver.Driver.
func (s setnx) Try(ctx context.Context, req driver.Request) (g driver.Grant, err error) {
	g.Request = req
	if req.Mode != driver.Exclusive {
		return g, driver.ErrUnsupported
	}
	if err := cmp.Or(s.layout.checkName(req.Name), s.forgetting.rules.Fits(&req)); err != nil {
		return g, err
	}
	reply, sent, err := s.takeBy(ctx, setnxTake, s.command(setnxTake, s.layout.setnxKeys(req.Name, req.Owner), req.Owner,
		decimal(micros(req.TTL)), decimal(micros(req.LockDelay)), decimal(micros(req.MinHold)), req.Note), req.TTL)
	if err != nil {
		return g, err
	}
	if fields, _ := reply.Value.([]any); number(fields, 0) == replyOK {
		g.Token, g.Block, g.Since, g.Valid = driver.Token(number(fields, 1)), 1, sent, req.TTL
		return s.counted(ctx, s, g, reply.short)
	}
	return g, refusal(&req, reply.Value)
}

// rest returns for how much longer a key is there that has so many milliseconds, and 0 if it does not
// end by itself. It returns life.Bound at most: other programs write what they like.
func rest(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), int64(life.Bound/time.Millisecond))) * time.Millisecond
}

func (s setnx) keysOf(g *driver.Grant) []string { return s.layout.setnxKeys(g.Name, g.Owner) }

// Renew implements driver.Driver.
func (s setnx) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := s.clock.Now()
	return renewals(grants, sent, s.batch(ctx, s.renewing(grants), setnxRenew, grants, s.keysOf, func(g *driver.Grant) []string {
		return []string{g.Owner, decimal(micros(g.TTL))}
	}))
}

// Release implements driver.Driver.
func (s setnx) Release(ctx context.Context, grants []driver.Grant) []error {
	return withdrawn(grants, s.batch(ctx, s.reserved, setnxRelease, grants, s.keysOf, func(g *driver.Grant) []string {
		return []string{g.Owner, decimal(micros(g.MinHold)), decimal(micros(refusedFor(g)))}
	}))
}

// Break implements driver.Operator. A hold of another program has no token, so it cannot be broken.
func (s setnx) Break(ctx context.Context, name string, token driver.Token) error {
	info, err := s.Inspect(ctx, name)
	if err != nil {
		return err
	}
	if len(info.Holders) == 0 || token <= 0 || info.Holders[0].Token != token {
		return driver.ErrNotHeld
	}
	owner := info.Holders[0].Owner
	command := setnxBreak.Command(s.layout.setnxKeys(name, owner), decimal(int64(token)), owner)
	return s.status(ctx, setnxBreak, command)
}

// Inspect implements driver.Operator.
func (s setnx) Inspect(ctx context.Context, name string) (driver.Info, error) {
	return one(s.inspect(ctx, name))
}

func (s setnx) inspect(ctx context.Context, names ...string) ([]driver.Info, error) {
	keys := func(name string) []string { return s.layout.setnxKeys(name, "")[:2] }
	return s.look(ctx, setnxInspect, names, keys, setnxInfo)
}

// setnxInfo reads a reply of setnx_inspect.lua.
func setnxInfo(info *driver.Info, fields []any) bool {
	left := rest(number(fields, 1))
	switch value := str(fields, 2); {
	case str(fields, 0) != "string":
	case value == setnxClosed, len(fields) == 8 && number(fields, 7) <= 0:
		info.ClosedFor = left // the holder is gone
	case len(fields) == 8:
		info.Holders = []driver.Holder{{
			Owner: str(fields, 3), Token: driver.Token(number(fields, 4)), Note: str(fields, 5),
			Held: duration(max(number(fields, 6), 0)), Expires: duration(number(fields, 7)),
		}}
	default:
		info.Holders = []driver.Holder{{Owner: strconv.Quote(value), Note: "not a lock of Holdfast's", Expires: left}}
	}
	return len(fields) == 3 || len(fields) == 8
}

// setnxClosed is CLOSED in setnx.lua.
const setnxClosed = "holdfast:closed"

// List implements driver.Operator. It shows the names that Holdfast has used lately. A key that only
// other programs use is not told from other data.
func (s setnx) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	pattern := literal.Replace(s.layout.prefix) + ":{*" + setnxSuffix
	return s.list(ctx, prefix, pattern, s.layout.setnxName, s.inspect)
}
