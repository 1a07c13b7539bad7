package zk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

const (
	openPatience = 10 * time.Second      // how long Open waits for a leader
	leaderRounds = 4                     // how often Open looks for one where all servers tell their roles
	leaderGrace  = 50 * time.Millisecond // how long another leader may answer later than the first
	firstPause   = 25 * time.Millisecond // between attempts to connect, about
	longestPause = 1000 * time.Millisecond
)

// open makes the first connection.
func (s *Session) open(ctx context.Context) (*conn, error) {
	start := time.Now()
	pause := 4 * firstPause
	for round := 1; ; round++ {
		c, err := s.round(ctx, 10*time.Second)
		if err != nil && s.config.Failed != nil {
			s.config.Failed(err)
		}
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, &driver.UnansweredError{Ended: context.Cause(ctx), Why: err}
		case !err.again && !err.noLeader:
			return nil, err
		case err.noLeader && (round >= leaderRounds || s.config.Leaderless), time.Since(start) > openPatience:
			return nil, err
		}
		if sleep(ctx, pause); ctx.Err() != nil {
			return nil, &driver.UnansweredError{Ended: context.Cause(ctx), Why: err}
		}
		pause = min(2*pause, longestPause)
	}
}

// resume connects again, until the session's timeout has passed since it last heard of a server: then the session is
// over, whatever servers say (P5). Requests may arrive although no answer does, and each offer of the session would
// keep it alive, with all that is held in it. The error says that the session is over.
func (s *Session) resume(heard driver.Instant) (*conn, error) {
	timeout := s.Timeout()
	pause := firstPause
	for s.ctx.Err() == nil {
		left := heard.Add(timeout).Sub(s.config.Clock.Now())
		if left <= 0 {
			return nil, fmt.Errorf("%w of %v; the last attempt: %w", ErrUnheard, timeout, s.Suspended())
		}
		// An attempt must leave time for another one before the session ends.
		ctx, cancel := context.WithTimeout(s.ctx, left)
		c, err := s.round(ctx, min(max(timeout/4, 500*time.Millisecond), 10*time.Second))
		cancel()
		if err == nil {
			return c, nil
		}
		if errors.Is(err, ErrExpired) || errors.Is(err, SessionClosedRequireAuth) {
			return nil, err
		}
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
		sleep(s.ctx, pause)
		pause = min(2*pause, longestPause, max(timeout/8, firstPause))
	}
	return nil, ErrClosed
}

// sleep waits about that long, and not longer than ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// roundError is why no server was found.
type roundError struct {
	error
	again    bool // servers answer, but none serves yet
	noLeader bool // all servers tell that they do not lead, or none tells its role
}

func (e *roundError) Unwrap() error { return e.error }

// round tries the servers once, each attempt for so long.
func (s *Session) round(ctx context.Context, each time.Duration) (*conn, *roundError) {
	rctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	addresses, err := s.config.addresses(rctx)
	if err != nil {
		return nil, &roundError{error: err}
	}
	if s.config.AnyServer {
		return s.anyOf(ctx, addresses, each)
	}
	a := addresses[0]
	if len(addresses) > 1 || !s.isOpen { // no session is opened where it could not stay
		var rerr *roundError
		if a, rerr = s.leaderOf(rctx, addresses); rerr != nil {
			return nil, rerr
		}
	}
	actx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	c, err := s.attempt(actx, a)
	if err != nil {
		return nil, asRoundError(err)
	}
	return c, nil
}

func asRoundError(err error) *roundError {
	if r, ok := errors.AsType[*roundError](err); ok {
		return r
	}
	return &roundError{error: err}
}

// anyOf tries all servers in a random order.
func (s *Session) anyOf(ctx context.Context, addresses []address, each time.Duration) (*conn, *roundError) {
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	var errs said
	again := false
	for _, a := range addresses {
		actx, cancel := context.WithTimeout(ctx, each)
		c, err := s.attempt(actx, a)
		cancel()
		if err == nil {
			return c, nil
		}
		if errors.Is(err, ErrExpired) || ctx.Err() != nil {
			return nil, asRoundError(err)
		}
		errs = append(errs, err)
		again = again || errors.Is(err, ErrHungUp)
	}
	return nil, &roundError{error: fmt.Errorf("zk: no server answers: %w", errs), again: again}
}

// said is what each server said, or why it could not be asked.
type said []error

// Error says all, on one line.
func (s said) Error() string {
	texts := make([]string, len(s))
	for i, err := range s {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all.
func (s said) Unwrap() []error { return s }

// leaderOf asks all servers at once which of them leads. Of two, since one may not know yet that it
// was deposed, it takes the one of the newer epoch.
func (s *Session) leaderOf(ctx context.Context, addresses []address) (address, *roundError) {
	type answer struct {
		address
		info Info
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan answer, len(addresses))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, a := range addresses {
		wg.Go(func() {
			info, err := s.config.probe(ctx, a, nil)
			answers <- answer{a, info, err}
		})
	}
	var best *answer
	var grace <-chan time.Time
	var errs said
	var again, follows, untold, hungUp bool
	unheard := 0
wait:
	for range addresses {
		select {
		case a := <-answers:
			switch {
			case a.err != nil:
				errs = append(errs, a.because(a.err))
				hungUp = hungUp || isEOF(a.err)
				unheard++
				continue
			case !a.info.Role.leads():
				errs = append(errs, fmt.Errorf("%s: %s", a.dial, a.info.Role.word()))
				again = again || a.info.Role == NotServing
				untold = untold || a.info.Role == Untold
				follows = follows || a.info.Role != NotServing && a.info.Role != Untold
				continue
			}
			if best == nil {
				t := time.NewTimer(leaderGrace)
				defer t.Stop()
				grace = t.C
			}
			if best == nil || a.info.Zxid>>32 > best.info.Zxid>>32 {
				best = &a
			}
		case <-grace:
			break wait
		}
	}
	switch {
	case best != nil:
		return best.address, nil
	case follows && unheard > 0 && !s.config.Leaderless:
		// The leader may be one that cannot be reached now. Another server would answer for it.
		return address{}, &roundError{error: fmt.Errorf("%w: %w", errUnreached, errs), again: true}
	case follows || untold:
		return address{}, &roundError{error: fmt.Errorf("%w: %w", ErrNoLeader, errs), noLeader: true}
	case again:
		return address{}, &roundError{error: fmt.Errorf("%w: %w", ErrNoQuorum, errs), again: true}
	}
	return address{}, &roundError{error: fmt.Errorf("zk: no server answers: %w", errs), again: hungUp}
}

// errUnreached says that the leader was not found among the servers that answer.
var errUnreached = errors.New("zk: the leader is none of the servers that answer")

// word says a role where it is expected to lead.
func (r Role) word() string {
	switch r {
	case NotServing:
		return "not serving requests"
	case Untold:
		return "does not tell its role (srvr is not in 4lw.commands.whitelist)"
	}
	return string(r)
}

// ErrHungUp says that a server ended the connection in place of an answer: it has too many of this host
// (maxClientCnxns), does not serve yet, or is behind what the session has seen.
var ErrHungUp = errors.New("the server ended the connection in place of an answer")

// because says why nobody could be asked at an address.
func (a address) because(err error) error {
	if isEOF(err) {
		return &roundError{error: fmt.Errorf("%s: %w: %w", a.dial, ErrHungUp, err), again: true}
	}
	return fmt.Errorf("%s: %w", a.dial, err)
}

// granted takes in what a server has granted. Suppose that maxSessionTimeout was lowered, or is lower at this
// server than at the last one. Then the session may end earlier than was told to those who count on it, so it is
// given up.
func (s *Session) granted(g connected) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOpen {
		s.id, s.password, s.timeout = g.id, g.password, g.timeout
	} else if g.timeout < s.timeout {
		return fmt.Errorf("%w: it would last for %v from now on, not for %v: maxSessionTimeout was lowered", ErrExpired, g.timeout, s.timeout)
	}
	return nil
}

// isNew reports whether a session that has ended was still being opened. Then nothing depends on it, and the next
// attempt opens another one.
func (s *Session) isNew() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOpen {
		return false
	}
	s.id, s.password = 0, make([]byte, passwordSize)
	return true
}

// attempt connects to one server and makes sure that it leads.
func (s *Session) attempt(ctx context.Context, a address) (*conn, error) {
	nc, err := s.config.dial(ctx, a)
	if err != nil {
		return nil, a.because(err)
	}
	ok := false
	defer func() {
		if !ok {
			nc.Close()
		}
	}()
	r, asked := newReader(nc), s.config.Clock.Now()
	s.mu.Lock()
	id, password, timeout, zxid := s.id, s.password, s.config.Timeout, s.zxid
	s.mu.Unlock()
	granted, err := handshake(ctx, nc, r, id, password, timeout, zxid)
	if err != nil {
		return nil, a.because(err)
	}
	if granted.timeout == 0 {
		if id == 0 {
			return nil, fmt.Errorf("%s: the server opens no session", a.dial)
		}
		err := fmt.Errorf("%s: %w", a.dial, ErrExpired)
		if s.isNew() {
			return nil, &roundError{error: err, again: true}
		}
		return nil, err
	}
	if err := s.granted(granted); err != nil {
		return nil, fmt.Errorf("%s: %w", a.dial, err)
	}
	if !s.config.AnyServer {
		// The second connection is made when the first one has been served. So a server that says
		// now that it leads did so when it took the first one, or has closed that one.
		same := a
		if s.config.Dial == nil {
			same.dial = nc.RemoteAddr().String()
		}
		info, err := s.config.probe(ctx, same, nc)
		if err != nil {
			return nil, a.because(err)
		}
		if !info.Role.leads() {
			return nil, &roundError{
				error: fmt.Errorf("%w: %s: %s", errUnreached, a.dial, info.Role.word()), // it was a moment ago
				again: true,
			}
		}
	}
	ok = true
	nc.SetDeadline(time.Time{})
	return &conn{s: s, nc: nc, r: r, at: a, heard: asked, wake: make(chan struct{}, 1), over: make(chan struct{})}, nil
}
