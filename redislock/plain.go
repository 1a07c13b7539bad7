package redislock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// A plain hold is exclusive, has one token and no minimum, and nobody waits for its name. It is a
// member of the record, a sorted set, and begins with its owner. So a short script takes it, and the
// command ZREM releases it: scripts are most of what a lock costs a server. A pair by the scripts that know the
// queue takes a lone caller 1.6 times as long, and the server 5 times.
//
// ZREM deletes this very member or none, in one step, so it frees no other hold (P4). A has a
// plain hold and releases it:
//
//   - Nobody came. The member is deleted, the last token stays in the record (P3), and there is nobody
//     to hand the name over to (P7).
//   - B has come before and waits. The script that queued B has written the hold as another member.
//     ZREM finds nothing, and the release goes on by script, which hands over to B.
//   - B comes after. It finds the name idle.
//   - The hold has expired, and no script has read the record since. It is deleted all the same:
//     nobody was let in meanwhile, and A says that it has stopped.
//
// The release goes by script if it has more to do: if there is a minimum hold; a lock-delay, which
// keeps the name closed after the expiry (P5); or a request that may still be under way, for which a
// tombstone must be left (P6). A hold that was raised is another member, so its release goes by script,
// too.

// plain marks the grant of a plain hold, as its Handle. If somebody waits since, or its note
// was changed, ZREM finds nothing. A grant out of the queue is not marked: others are likely to wait
// behind it, so that ZREM would be in vain.
type plain struct{}

// longestPlain is the longest TTL, with the lock-delay, that idle.lua takes.
const longestPlain = 5 * time.Minute

// mayBePlain reports whether idle.lua may grant the request.
func mayBePlain(req *driver.Request) bool {
	return req.Mode == driver.Exclusive && req.Tokens <= 1 && req.MinHold == 0 &&
		req.TTL+req.LockDelay <= longestPlain
}

// errAsk says that take.lua leaves the decision to ask.lua.
var errAsk = errors.New("ask")

// appendPlain writes the member of a plain hold.
func (c *client) appendPlain(b []byte, req *driver.Request) []byte {
	b = append(append(append(b, "h:"...), escape(req.Owner)...), ' ')
	b = append(strconv.AppendInt(b, micros(req.TTL), 10), ' ')
	b = append(strconv.AppendInt(b, micros(req.LockDelay), 10), ' ')
	b = append(append(b, c.id...), "  "...)
	return append(b, req.Note...)
}

// record is the key of the record and the member of a plain hold, allocated in one piece.
func (c *client) record(req *driver.Request) (key, member string) {
	b := c.layout.appendRecord(make([]byte, 0, 256), req.Name)
	n := len(b)
	all := string(c.appendPlain(b, req))
	return all[:n], all[n:]
}

// takePlain takes a plain hold, or returns errAsk.
func (c *client) takePlain(ctx context.Context, req driver.Request) (driver.Grant, error) {
	key, member := c.record(&req)
	sent := c.clock.Now()
	reply := c.sharedAck.route(c.shared, req.TTL).run(ctx, takeScript, c.command(takeScript, []string{key}, member))[0]
	if reply.Err != nil {
		return driver.Grant{Request: req}, outcome(reply.Err)
	}
	switch v := reply.Value.(type) {
	case nil:
		return driver.Grant{}, errAsk
	case int64:
		return c.counted(ctx, c, plainGrant(req, v, sent), reply.short)
	}
	return driver.Grant{Request: req}, refusal(&req, reply.Value)
}

// plainGrant is the grant of a hold that idle.lua has taken.
func plainGrant(req driver.Request, token int64, sent driver.Instant) driver.Grant {
	return driver.Grant{
		Request: req, Token: driver.Token(token), Block: 1, Since: sent, Valid: req.TTL, Handle: plain{},
	}
}

// releasePlain releases a hold by ZREM, if that is all that its release needs. It reports whether it
// has; if not, the script must release it.
func (c *client) releasePlain(ctx context.Context, g *driver.Grant) (done bool, err error) {
	if _, ok := g.Handle.(plain); !ok || g.Token == 0 || g.Stray || g.MinHold > 0 || g.LockDelay > 0 {
		return false, nil
	}
	key, member := c.record(&g.Request)
	reply := c.reserved.do(ctx, []Command{{Args: []string{"ZREM", key, member}, Key: key}})[0]
	return reply.Err != nil || reply.Value == int64(1), Explain(reply.Err)
}
