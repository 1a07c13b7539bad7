package redislock

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
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

// asking is a way to send the command that takes a hold, which is one of a script. Same says that the server has
// carried it out in the life that the caller knows: see vote.Voter.
type asking func(ctx context.Context, s *script, take Command) (reply answer, same bool)

// once asks for something of that TTL, and not in which life the server is.
func (c *link) once(ttl time.Duration) asking {
	to := c.sharedAck.route(c.shared, ttl)
	return func(ctx context.Context, s *script, take Command) (answer, bool) {
		return to.run(ctx, s, take)[0], true
	}
}

// Try implements driver.Driver.
func (c *client) Try(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if mayBePlain(&req) {
		if g, err := c.takePlain(ctx, req); err != errAsk {
			return g, err
		}
	}
	g, _, err := c.ask(ctx, req, false, false, c.once(req.TTL))
	return g, err
}

// Vote implements vote.Voter.
func (c *client) Vote(ctx context.Context, req driver.Request, life vote.Life) (driver.Grant, bool, error) {
	return c.ask(ctx, req, false, true, c.in(life))
}

// ask takes the hold or, if queue says so, a place in the queue. First says that this is the first
// request of its owner, so that the name may be idle.
func (c *client) ask(ctx context.Context, req driver.Request, queue, first bool, by asking) (g driver.Grant, same bool, err error) {
	g.Request = req
	if err := c.fits(&req); err != nil {
		return g, false, err
	}
	sent := c.clock.Now()
	command := c.askCommand(&req, sent, queue, first)
	reply, same := by(ctx, askScript, command)
	for try := 0; unbegun(&reply); try++ {
		if err := c.live(ctx, &command, try); err != nil {
			return g, false, driver.Uncertain(err) // the request may have taken a place
		}
		sent = c.clock.Now()
		reply, same = by(ctx, askScript, command)
	}
	fields, _ := reply.Value.([]any)
	token, idle := reply.Value.(int64)
	switch {
	case reply.Err != nil:
		return g, same, outcome(reply.Err)
	case idle:
		g = plainGrant(req, token, sent)
	case number(fields, 0) == replyOK:
		g.Token, g.Block = driver.Token(number(fields, 1)), int(number(fields, 3))
		g.Contended, g.Since, g.Valid = number(fields, 4) == 1, sent, req.TTL
		if number(fields, 2) == 1 {
			g.Handle = plain{}
		}
	default:
		return g, same, refusal(&req, reply.Value)
	}
	g, err = c.counted(ctx, c, g, reply.short)
	return g, same, err
}

// askCommand returns the command of ask.
func (c *client) askCommand(req *driver.Request, sent driver.Instant, queue, first bool) Command {
	rest := make([]byte, 0, 96)
	for _, n := range [...]int64{
		int64(req.Mode), int64(req.Slots), int64(req.Permits), micros(req.MinHold), int64(sent),
		micros(c.caps.PollInterval()), flag(req.Unfair), flag(queue),
		int64(min(max(req.Tokens, 1), tokenBlock)),
	} {
		rest = append(strconv.AppendInt(rest, n, 10), ' ')
	}
	args := []string{string(c.appendPlain(nil, req)), string(rest[:len(rest)-1]), ""}
	if !first || !mayBePlain(req) {
		args = args[:2]
	}
	return c.command(askScript, c.layout.keys(req.Name), args...)
}

// refusal returns the error of a reply that is no grant.
func refusal(req *driver.Request, value any) error {
	fields, _ := value.([]any)
	switch number(fields, 0) {
	case replyHeld:
		return &driver.HeldError{
			Name: req.Name, Queued: int(number(fields, 1)), ExpiresIn: duration(number(fields, 2)),
			Note: str(fields, 3), Token: driver.Token(number(fields, 4)), Ahead: int(number(fields, 5)),
			Forgotten: duration(max(0, number(fields, 6))),
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

// remedies say what to do about a refusal, by its code.
var remedies = map[string]string{
	"NOAUTH":      "the server wants a password, or a user and a password",
	"WRONGPASS":   "user or password is wrong, or the user is disabled",
	"NOPERM":      "the user lacks a permission: it needs the commands EVAL, EVALSHA, those that the scripts call, INFO, ZREM, GET, SET, SCAN, SUBSCRIBE and PUBSUB|NUMSUB, for replicas also WAIT, and the keys and channels that begin with the prefix, ~" + DefaultPrefix + ":* &" + DefaultPrefix + ":* unless another is set; holdfast doctor names what is missing",
	"LOADING":     "the server has been started and reads its data",
	"READONLY":    "the server is a replica: connect to the primary, or open it by redis+sentinel://",
	"MASTERDOWN":  "the server is a replica that has lost its primary: connect to the primary",
	"OOM":         "the server's memory is full: raise maxmemory, or remove data",
	"MISCONF":     "the server cannot write to its disk, and is set up to refuse writes then: see its log",
	"NOREPLICAS":  "the server has fewer replicas than min-replicas-to-write says",
	"BUSY":        "somebody's script runs for too long: SCRIPT KILL ends it",
	"WRONGTYPE":   "another program uses the key: give the locks another prefix",
	"MOVED":       "the server is a node of a cluster: open it by redis+cluster://",
	"CLUSTERDOWN": "the cluster has a hash slot without a master, or has just lost one: see CLUSTER INFO",
	"TRYAGAIN":    "the name's hash slot is being moved to another server",
}

// Explain adds to a server's refusal what to do about it. It returns other errors as they are.
func Explain(err error) error {
	if refused, ok := errors.AsType[*ServerError](err); ok && remedies[refused.Code()] != "" {
		return fmt.Errorf("%w (%s)", err, remedies[refused.Code()])
	}
	return err
}

// isRefusal reports whether an error is a reply of the server.
func isRefusal(err error) bool {
	_, is := errors.AsType[*ServerError](err)
	return is
}

// before are the codes by which a server refuses the first write of a script, but no later one.
var before = []string{"OOM", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN"}

// outcome marks the error of a request as uncertain if the store may have carried it out (P6): if it was sent and no
// reply came, or if a script ended with an error, because what it did before that stays done.
func outcome(err error) error {
	if unsent, ok := errors.AsType[notSent](err); ok {
		return unsent.error
	}
	refused, ok := errors.AsType[*ServerError](err)
	if !ok {
		return driver.Uncertain(err)
	}
	inside := strings.Contains(refused.Text, "script: ") ||
		strings.HasPrefix(refused.Text, "Error running script")
	if inside && !slices.Contains(before, refused.Code()) {
		return driver.Uncertain(Explain(err))
	}
	return Explain(err)
}
