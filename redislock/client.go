package redislock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// micros writes a duration for the scripts, in microseconds, rounded up: the
// server never keeps a hold for less than its holder trusts it.
func micros(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Microsecond-1)/time.Microsecond), 10)
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// escape returns an owner as the scripts know it, without spaces. Owners of
// package holdfast stay as they are.
func escape(owner string) string { return url.QueryEscape(owner) }

// unescape gives an owner back; what was not written by escape stays as it is.
func unescape(text string) string {
	if owner, err := url.QueryUnescape(text); err == nil {
		return owner
	}
	return text
}

// keys returns the record's key and that of the owner's farewell.
func (c *client) keys(name, owner string) (record, gone string) {
	record = c.layout.record(name)
	return record, c.layout.gone(record) + escape(owner)
}

// Try implements driver.Driver.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	return c.ask(ctx, req, false)
}

// ask takes the hold or, if it may, a place in the queue.
func (c *client) ask(ctx context.Context, req driver.Request, queue bool) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	record, gone := c.keys(req.Name, req.Owner)
	sent := c.clock.Now()
	keep := strings.Join([]string{micros(req.TTL), micros(req.LockDelay), escape(req.Owner), c.channel, req.Note}, " ")
	rest := fmt.Sprintf("%d %d %d %d %s %s %s", req.Mode, req.Slots, req.Permits, sent, micros(c.caps.PollInterval()), flag(req.Unfair), flag(queue))
	reply := c.run(ctx, call{askScript, []string{record, gone}, []string{keep, rest}})[0]
	if reply.Err != nil {
		return driver.Grant{Request: req}, outcome(reply.Err)
	}
	fields, _ := reply.Value.([]any)
	switch number(fields, 0) {
	case replyOK:
		return driver.Grant{Request: req, Token: driver.Token(number(fields, 1)), Since: sent, Valid: req.TTL}, nil
	case replyHeld:
		return driver.Grant{}, &driver.HeldError{
			Name: req.Name, Queued: int(number(fields, 1)), ExpiresIn: duration(number(fields, 2)),
			Note: str(fields, 3), Token: driver.Token(number(fields, 4)),
		}
	case replyMismatch:
		return driver.Grant{}, driver.ErrMismatch
	}
	if err := ended(fields); driver.Gone(err) {
		return driver.Grant{Request: req}, err
	}
	return driver.Grant{Request: req}, driver.Uncertain(errStrange(reply.Value))
}

// outcome marks an error that leaves it open whether the store has done it (P6).
func outcome(err error) error {
	if refused := (*ServerError)(nil); errors.As(err, &refused) {
		return err
	}
	return driver.Uncertain(err)
}

// ended is goodbye for a reply that says why in a list.
func ended(fields []any) error {
	if len(fields) == 0 || fields[0] == int64(replyOK) {
		return errStrange(fields)
	}
	return goodbye(fields[0])
}

// goodbye returns the error of a reply that says how a hold fares: nil if it is
// there. Text is the error of one item of a batch.
func goodbye(value any) error {
	switch v := value.(type) {
	case int64:
		switch v {
		case replyOK:
			return nil
		case replyNotHeld:
			return driver.ErrNotHeld
		case replyBroken:
			return driver.ErrBroken
		}
	case string:
		return &ServerError{v}
	}
	return errStrange(value)
}

// batchSize is how many holds one script call renews or releases: the server
// does nothing else meanwhile.
const batchSize = 100

// batch runs a script over grants, batchSize at a time in one pipeline, and
// gives each its outcome.
func (c *client) batch(ctx context.Context, s *script, grants []driver.Grant, args func(*driver.Grant) []string) []error {
	errs := make([]error, len(grants))
	if err := c.alive(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	var calls []call
	for i := range grants {
		if i%batchSize == 0 {
			calls = append(calls, call{script: s})
		}
		last := &calls[len(calls)-1]
		record, gone := c.keys(grants[i].Name, grants[i].Owner)
		last.keys = append(last.keys, record, gone)
		last.args = append(last.args, args(&grants[i])...)
	}
	replies := c.run(ctx, calls...)
	for i := range grants {
		reply := &replies[i/batchSize]
		items, _ := reply.Value.([]any)
		switch {
		case reply.Err != nil:
			errs[i] = reply.Err
		case i%batchSize >= len(items):
			errs[i] = errStrange(reply.Value)
		default:
			errs[i] = goodbye(items[i%batchSize])
		}
	}
	return errs
}

// Renew implements driver.Driver.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := c.clock.Now()
	renewals := make([]driver.Renewal, len(grants))
	for i, err := range c.batch(ctx, renewScript, grants, func(g *driver.Grant) []string { return []string{escape(g.Owner)} }) {
		if err != nil {
			renewals[i].Err = err
		} else {
			renewals[i] = driver.Renewal{Since: sent, Valid: grants[i].TTL}
		}
	}
	return renewals
}

// withdrawnFor is how long the store refuses a withdrawn request that comes
// after its withdrawal, if that is more than the request's TTL (P6).
const withdrawnFor = time.Minute

// Release implements driver.Driver.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	for i := range grants {
		c.forget(grants[i].Owner)
	}
	errs := c.batch(ctx, releaseScript, grants, func(g *driver.Grant) []string {
		refuse := time.Duration(0)
		if g.Token == 0 || g.Stray {
			refuse = max(g.TTL, withdrawnFor)
		}
		return []string{escape(g.Owner), micros(g.MinHold), micros(refuse)}
	})
	for i := range errs {
		if grants[i].Token == 0 && driver.Gone(errs[i]) {
			errs[i] = nil
		}
	}
	return errs
}

// Downgrade implements driver.Downgrader.
func (c *client) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, err
	}
	record, gone := c.keys(g.Name, g.Owner)
	sent := c.clock.Now()
	reply := c.run(ctx, call{downgradeScript, []string{record, gone}, []string{escape(g.Owner)}})[0]
	if reply.Err != nil {
		return driver.Grant{}, reply.Err
	}
	fields, _ := reply.Value.([]any)
	if number(fields, 0) != replyOK {
		return driver.Grant{}, ended(fields)
	}
	g.Mode, g.Token, g.Since, g.Valid = driver.Shared, driver.Token(number(fields, 1)), sent, g.TTL
	return g, nil
}

// Break implements driver.Breaker.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	record, gone := c.keys(name, "")
	reply := c.run(ctx, call{breakScript, []string{record, gone}, []string{fmt.Sprint(int64(token))}})[0]
	if reply.Err != nil {
		return reply.Err
	}
	return goodbye(reply.Value)
}
