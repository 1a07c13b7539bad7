package redislock

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// micros is a duration for the scripts, in microseconds, rounded up: the server
// never keeps a hold for less than its holder trusts it.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// escape returns an owner as the scripts know it, without spaces. It changes no owner that package
// holdfast makes.
func escape(owner string) string { return url.QueryEscape(owner) }

// unescape undoes escape. Text that escape has not written stays as it is.
func unescape(text string) string {
	if owner, err := url.QueryUnescape(text); err == nil {
		return owner
	}
	return text
}

// Try implements driver.Driver.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if mayBePlain(&req) {
		if g, err := c.takePlain(ctx, req); err != errAsk {
			return g, err
		}
	}
	return c.ask(ctx, req, false, false)
}

// ask takes the hold or, if queue says so, a place in the queue. First says that this is the first
// request of its owner, so that the name may be idle.
func (c *client) ask(ctx context.Context, req driver.Request, queue, first bool) (driver.Grant, error) {
	if err := cmp.Or(c.alive(ctx), c.undoing(req.Owner)); err != nil {
		return driver.Grant{Request: req}, err
	}
	sent := c.clock.Now()
	to := c.sharedAck.route(c.shared, req.TTL)
	reply := to.run(ctx, askScript, c.askCommand(&req, sent, queue, first))[0]
	return c.asked(ctx, req, &reply, sent)
}

// askCommand returns the command of ask.
func (c *client) askCommand(req *driver.Request, sent driver.Instant, queue, first bool) Command {
	keys := c.layout.keys(req.Name)
	rest := make([]byte, 0, 96)
	for _, n := range [...]int64{
		int64(req.Mode), int64(req.Slots), int64(req.Permits), micros(req.MinHold), int64(sent),
		micros(c.caps.PollInterval()), flag(req.Unfair), flag(queue),
		int64(min(max(req.Tokens, 1), tokenBlock)),
	} {
		rest = append(strconv.AppendInt(rest, n, 10), ' ')
	}
	rest = rest[:len(rest)-1]
	args := []string{string(c.appendPlain(nil, req)), string(rest), ""}
	if !first || !mayBePlain(req) {
		args = args[:2]
	}
	return askScript.command(keys[:], args...)
}

// asked reads the reply to it.
func (c *client) asked(ctx context.Context, req driver.Request, reply *answer, sent driver.Instant) (driver.Grant, error) {
	if reply.Err != nil {
		return driver.Grant{Request: req}, outcome(reply.Err)
	}
	if token, ok := reply.Value.(int64); ok {
		return c.counted(ctx, c, plainGrant(req, token, sent), reply.short)
	}
	fields, _ := reply.Value.([]any)
	if number(fields, 0) == replyOK {
		g := driver.Grant{
			Request: req, Token: driver.Token(number(fields, 1)), Block: int(number(fields, 3)),
			Contended: number(fields, 4) == 1, Since: sent, Valid: req.TTL,
		}
		if number(fields, 2) == 1 {
			g.Handle = plain{}
		}
		return c.counted(ctx, c, g, reply.short)
	}
	return driver.Grant{Request: req}, refusal(&req, reply.Value)
}

// refusal returns the error of a reply that is no grant.
func refusal(req *driver.Request, value any) error {
	fields, _ := value.([]any)
	switch number(fields, 0) {
	case replyHeld:
		return &driver.HeldError{
			Name: req.Name, Queued: int(number(fields, 1)), ExpiresIn: duration(number(fields, 2)),
			Note: str(fields, 3), Token: driver.Token(number(fields, 4)), Ahead: int(number(fields, 5)),
		}
	case replyMismatch:
		return driver.ErrMismatch
	}
	if err := listedStatusError(fields); driver.Gone(err) {
		return err
	}
	return driver.Uncertain(errUnexpected(value))
}

// listedStatusError is statusError for a status that is the first of a list.
func listedStatusError(fields []any) error {
	if len(fields) == 0 || fields[0] == int64(replyOK) {
		return errUnexpected(fields)
	}
	return statusError(fields[0])
}

// statusError returns the error of a reply that is the status of a hold, nil if the hold is there.
// Text is the error of one item of a batch.
func statusError(value any) error {
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
		return Explain(&ServerError{Text: strings.TrimPrefix(v, "ERR ")})
	}
	return errUnexpected(value)
}

// batchSize is how many holds one script call renews or releases at most: the server does nothing
// else meanwhile. In a cluster it is one.
const batchSize = 100

// batch runs a script over grants, batchSize at a time in one pipeline, and returns an error or nil for
// each.
func (c *client) batch(
	ctx context.Context, to route, s *script, grants []driver.Grant, args func(*driver.Grant) []string,
) []error {
	return c.batchOf(ctx, to, s, grants, func(g *driver.Grant) []string {
		keys := c.layout.keys(g.Name)
		return keys[:]
	}, args)
}

// batchOf is batch of another layout.
func (c *client) batchOf(
	ctx context.Context, to route, s *script, grants []driver.Grant, keysOf, args func(*driver.Grant) []string,
) []error {
	errs := make([]error, len(grants))
	if err := c.alive(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	size := batchSize
	if c.cluster {
		size = 1 // all keys of a script must have one hash slot
	}
	var commands []Command
	for rest := grants; len(rest) > 0; {
		var keys, values []string
		part := rest[:min(size, len(rest))]
		for i := range part {
			keys = append(keys, keysOf(&part[i])...)
			values = append(values, args(&part[i])...)
		}
		commands = append(commands, s.command(keys, values...))
		rest = rest[len(part):]
	}
	replies := to.run(ctx, s, commands...)
	for i := range grants {
		reply := &replies[i/size]
		items, _ := reply.Value.([]any)
		switch {
		case reply.Err != nil:
			errs[i] = Explain(reply.Err)
		case i%size >= len(items):
			errs[i] = errUnexpected(reply.Value)
		default:
			if errs[i] = statusError(items[i%size]); errs[i] == nil {
				errs[i] = reply.short
			}
		}
	}
	return errs
}

// renewing is the route of renewals of these grants.
func (c *client) renewing(grants []driver.Grant) route {
	if c.reservedAck == nil || len(grants) == 0 {
		return c.reserved
	}
	least := slices.MinFunc(grants, func(a, b driver.Grant) int { return cmp.Compare(a.TTL, b.TTL) })
	return c.reservedAck.route(c.reserved, least.TTL)
}

// Renew implements driver.Driver.
func (c *client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := c.clock.Now()
	return renewals(grants, sent, c.batch(ctx, c.renewing(grants), renewScript, grants, func(g *driver.Grant) []string {
		token := int64(0)
		if g.HandedOver {
			token = int64(g.Token)
		}
		return []string{escape(g.Owner), decimal(token)}
	}))
}

// Raise implements vote.Raiser.
func (c *client) Raise(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	sent := c.clock.Now()
	return renewals(grants, sent, c.batch(ctx, c.renewing(grants), raiseScript, grants, func(g *driver.Grant) []string {
		return []string{escape(g.Owner), decimal(int64(g.Token))}
	}))
}

// renewals returns the outcome of renewals that were sent at an instant.
func renewals(grants []driver.Grant, sent driver.Instant, errs []error) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	for i, err := range errs {
		if err != nil {
			renewals[i].Err = err
		} else {
			renewals[i] = driver.Renewal{Since: sent, Valid: grants[i].TTL}
		}
	}
	return renewals
}

// withdrawnFor is how long, at least, the store refuses a request that was withdrawn before it came
// (P6).
const withdrawnFor = time.Minute

// Release implements driver.Driver. A single plain hold is released without a script; of many holds
// a script releases a hundred at a time.
func (c *client) Release(ctx context.Context, grants []driver.Grant) []error {
	if len(grants) == 1 {
		if done, err := c.releasePlain(ctx, &grants[0]); done {
			return []error{err}
		}
	}
	for i := range grants {
		c.removeWaiter(grants[i].Owner)
	}
	return withdrawn(grants, c.batch(ctx, c.reserved, releaseScript, grants, func(g *driver.Grant) []string {
		return []string{
			escape(g.Owner), decimal(int64(g.Token)), decimal(micros(g.MinHold)), decimal(micros(refusedFor(g))),
		}
	}))
}

// refusedFor returns for how long the store must refuse further requests of the owner: 0 if none can be
// under way.
func refusedFor(g *driver.Grant) time.Duration {
	if g.Token == 0 || g.Stray {
		return max(g.TTL, withdrawnFor)
	}
	return 0
}

// withdrawn returns the errors of a release. A request that is withdrawn need not have been granted.
func withdrawn(grants []driver.Grant, errs []error) []error {
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
	keys := c.layout.keys(g.Name)
	sent := c.clock.Now()
	command := downgradeScript.command(keys[:], escape(g.Owner))
	reply := c.sharedAck.route(c.shared, g.TTL).run(ctx, downgradeScript, command)[0]
	if reply.Err != nil {
		return driver.Grant{}, Explain(reply.Err)
	}
	fields, _ := reply.Value.([]any)
	if number(fields, 0) != replyOK {
		return driver.Grant{}, listedStatusError(fields)
	}
	if reply.short != nil { // it is shared, but a replica may let its TTL end sooner
		return driver.Grant{}, reply.short
	}
	g.Mode, g.Token, g.Handle = driver.Shared, driver.Token(number(fields, 1)), nil
	g.Since, g.Valid, g.Claim = sent, g.TTL, false
	return g, nil
}

// Break implements driver.Operator.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	keys := c.layout.keys(name)
	command := breakScript.command(keys[:], decimal(int64(token)))
	reply := c.shared.run(ctx, breakScript, command)[0]
	if reply.Err != nil {
		return Explain(reply.Err)
	}
	return statusError(reply.Value)
}
