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
	"github.com/holdfastlock/holdfast/internal/pause"
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
	if err := c.forgetting.rules.Fits(&req); err != nil {
		return driver.Grant{}, err
	}
	if mayBePlain(&req) {
		if g, err := c.takePlain(ctx, req); err != errAsk {
			return g, err
		}
	}
	return c.ask(ctx, req, false, false)
}

// ask takes the hold or, if queue says so, a place in the queue. First says that this is the first
// request of its owner, so that the name may be idle.
func (c *client) ask(ctx context.Context, req driver.Request, queue, first bool) (g driver.Grant, err error) {
	g.Request = req
	reply, sent, err := c.takeBy(ctx, askScript, c.askCommand(&req, c.clock.Now(), queue, first), req.TTL)
	if err != nil {
		return g, err
	}
	fields, _ := reply.Value.([]any)
	token, idle := reply.Value.(int64)
	switch {
	case idle:
		g = plainGrant(req, token, sent)
	case number(fields, 0) == replyOK:
		g.Token, g.Block = driver.Token(number(fields, 1)), int(number(fields, 3))
		g.Contended, g.Since, g.Valid = number(fields, 4) == 1, sent, req.TTL
		if number(fields, 2) == 1 {
			g.Handle = plain{}
		}
	default:
		return g, refusal(&req, reply.Value)
	}
	return c.counted(ctx, c, g, reply.short)
}

// How often a life is begun for a request, and the pause before each time but the first: while a slot moves, the table of
// the cluster's slots is old for a moment.
const (
	liveTries = 5
	livePause = 100 * time.Millisecond
)

// takeBy runs a script that takes a hold of that TTL, and returns when the request was sent that the reply answers. A
// server that has not begun its life begins it, and is asked again.
func (c *link) takeBy(ctx context.Context, s *script, command Command, ttl time.Duration) (reply answer, sent driver.Instant, err error) {
	to := c.sharedAck.route(c.shared, ttl)
	for try := 0; ; try++ {
		sent = c.clock.Now()
		if reply = to.run(ctx, s, command)[0]; reply.Err != nil {
			return reply, sent, outcome(reply.Err)
		}
		if !unbegun(&reply) {
			return reply, sent, nil
		}
		err := errLives
		if try == 0 || try < liveTries && pause.Sleep(ctx, livePause) {
			err = c.live(ctx, &command)
		}
		if err != nil {
			return reply, sent, driver.Uncertain(err) // the request may have taken a place
		}
	}
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
		if slots := number(fields, 1); slots >= 0 { // else it is not known
			return driver.Mismatch(int(slots), req.Slots)
		}
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
