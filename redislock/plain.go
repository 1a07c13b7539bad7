package redislock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// A plain hold is exclusive, has one token and no minimum, and nobody waits for its name. It is a field of the record's hash, named by its
// owner, so that it can be taken by a short script and released by a command,
// HDEL: scripts are what a lock costs a server.
//
// HDEL deletes the field of this owner or none, in one step, so it can free
// nobody else's hold (P4). If it deletes, the record had nothing else but the
// last token: any script that adds a waiter, another hold or a farewell packs the
// record, which deletes the field, so nobody is there to whom the name would
// have to be handed over (P7), and the last token stays (P3). If a waiter comes
// first, HDEL finds no field and the release goes on by script; if it comes
// second it finds the name idle. A hold that has expired but that nobody has
// looked at since is deleted as if it had not: nobody was let in meanwhile, and
// its owner says now that it has stopped. Where more is to be done the script does
// it: a minimum hold; a lock-delay, which keeps the name closed after the expiry
// (P5); a request that may still be on its way, for which a farewell must be left
// (P6).

// plain marks the grant of a plain hold, as its Handle. What it says may be out
// of date: then HDEL finds no field. A hand-off does not say it, because others
// are likely to wait behind, and HDEL would be in vain.
type plain struct{}

// longestPlain is the longest TTL, with the lock-delay, that idle.lua takes.
const longestPlain = 5 * time.Minute

// mayBePlain reports whether idle.lua may grant the request.
func mayBePlain(req *driver.Request) bool {
	return req.Mode == driver.Exclusive && req.Tokens <= 1 && req.MinHold == 0 && req.TTL+req.LockDelay <= longestPlain
}

// errAsk says that take.lua has decided nothing.
var errAsk = errors.New("ask")

// field is the name of the field of a plain hold.
func field(owner string) string { return "h:" + escape(owner) }

// text is what the field keeps of a request.
func (c *client) text(req *driver.Request) string { return string(c.appendText(nil, req)) }

func (c *client) appendText(b []byte, req *driver.Request) []byte {
	b = append(b, "0 "...)
	b = append(strconv.AppendInt(b, micros(req.TTL), 10), ' ')
	b = append(strconv.AppendInt(b, micros(req.LockDelay), 10), ' ')
	b = append(append(b, c.id...), ' ')
	return append(b, req.Note...)
}

// single is a command in one piece, with its arguments and what they are made of,
// because memory is what a plain hold costs the client.
type single struct {
	command [1]Command
	args    [6]string
}

// do sends the command with n arguments.
func (s *single) do(ctx context.Context, l route, n int, key string) Reply {
	s.command[0] = Command{Args: s.args[:n:n], Key: key}
	return l.do(ctx, s.command[:])[0]
}

// appendKeys writes the record's key and the field of a plain hold, and returns
// where the first ends.
func (c *client) appendKeys(b []byte, name, owner string) ([]byte, int) {
	b = c.layout.appendRecord(b, name)
	key := len(b)
	return append(append(b, "h:"...), escape(owner)...), key
}

// take takes a plain hold, or returns errAsk.
func (c *client) take(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	b, key := c.appendKeys(make([]byte, 0, 256), req.Name, req.Owner)
	field := len(b)
	all := string(c.appendText(b, &req))
	s := &single{args: [...]string{"EVALSHA", takeScript.sha, "1", all[:key], all[key:field], all[field:]}}
	sent := c.clock.Now()
	reply := s.do(ctx, c.shared, len(s.args), all[:key])
	if unknown(&reply) {
		s.args[0], s.args[1] = "EVAL", takeScript.text
		reply = s.do(ctx, c.shared, len(s.args), all[:key])
	}
	if reply.Err != nil {
		return driver.Grant{Request: req}, outcome(reply.Err)
	}
	switch v := reply.Value.(type) {
	case nil:
		return driver.Grant{}, errAsk
	case int64:
		return plainGrant(req, v, sent), nil
	}
	return driver.Grant{Request: req}, refusal(&req, reply.Value)
}

// plainGrant is the grant of a hold that idle.lua has taken.
func plainGrant(req driver.Request, token int64, sent driver.Instant) driver.Grant {
	return driver.Grant{
		Request: req, Token: driver.Token(token), Block: 1, Since: sent, Valid: req.TTL, Handle: plain{},
	}
}

// drop releases a hold by HDEL, if that is all that its release needs. It reports
// whether it has: if not, it is up to the script.
func (c *client) drop(ctx context.Context, g *driver.Grant) (done bool, err error) {
	if _, ok := g.Handle.(plain); !ok || g.Token == 0 || g.Stray || g.MinHold > 0 || g.LockDelay > 0 {
		return false, nil
	}
	if err := c.alive(ctx); err != nil {
		return true, err
	}
	b, key := c.appendKeys(make([]byte, 0, 128), g.Name, g.Owner)
	all := string(b)
	s := &single{args: [6]string{"HDEL", all[:key], all[key:]}}
	reply := s.do(ctx, c.kept, 3, all[:key])
	return reply.Err != nil || reply.Value == int64(1), Explain(reply.Err)
}
