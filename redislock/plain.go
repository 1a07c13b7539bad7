package redislock

import (
	"context"
	"errors"
	"strconv"

	"github.com/holdfastlock/holdfast/driver"
)

// A plain hold is exclusive, and nobody waits for its name. It is a field of the record's hash, named by its
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
// looked at since is deleted as if it had not: nobody was let in meanwhile. Where
// more is to be done than that the script does it: a minimum hold; a request that
// may still be on its way, for which a farewell must be left (P6); a hold that has
// ended by our own clock, whose loss must be told (P2).

// plain marks the grant of a plain hold, as its Handle. What it says may be out
// of date: then HDEL finds no field. A hand-off does not say it, because others
// are likely to wait behind, and HDEL would be in vain.
type plain struct{}

// errAsk says that take.lua has decided nothing.
var errAsk = errors.New("ask")

// field is the name of the field of a plain hold.
func field(owner string) string { return "h:" + escape(owner) }

// text is what the field keeps of a request.
func (c *client) text(req *driver.Request) string {
	b := make([]byte, 0, 128)
	b = append(b, "0 "...)
	b = append(strconv.AppendInt(b, micros(req.TTL), 10), ' ')
	b = append(strconv.AppendInt(b, micros(req.LockDelay), 10), ' ')
	b = append(append(b, c.channel...), ' ')
	return string(append(b, req.Note...))
}

// take takes a plain hold, or returns errAsk.
func (c *client) take(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	key := c.layout.record(req.Name)
	sent := c.clock.Now()
	reply := c.run(ctx, takeScript, Command{
		Args: []string{"EVALSHA", takeScript.sha, "1", key, field(req.Owner), c.text(&req)}, Key: key,
	})[0]
	if reply.Err != nil {
		return driver.Grant{Request: req}, outcome(reply.Err)
	}
	switch v := reply.Value.(type) {
	case nil:
		return driver.Grant{}, errAsk
	case int64:
		return driver.Grant{Request: req, Token: driver.Token(v), Since: sent, Valid: req.TTL, Handle: plain{}}, nil
	}
	return driver.Grant{Request: req}, refusal(&req, reply.Value)
}

// drop releases the plain holds among the grants, puts how it went into errs, and
// returns which grants are left for the script.
func (c *client) drop(ctx context.Context, grants []driver.Grant, errs []error) (left []int) {
	var commands []Command
	var sent []int
	now, err := c.clock.Now(), c.alive(ctx)
	for i := range grants {
		g := &grants[i]
		if _, ok := g.Handle.(plain); !ok || err != nil || g.Token == 0 || g.Stray || g.MinHold > 0 || now >= g.Since.Add(g.Valid) {
			left = append(left, i)
			continue
		}
		key := c.layout.record(g.Name)
		commands = append(commands, Command{Args: []string{"HDEL", key, field(g.Owner)}, Key: key})
		sent = append(sent, i)
	}
	if commands == nil {
		return left
	}
	for i, reply := range c.conn.Do(ctx, commands) {
		switch {
		case reply.Err != nil:
			errs[sent[i]] = reply.Err
		case reply.Value != int64(1):
			left = append(left, sent[i])
		}
	}
	return left
}
