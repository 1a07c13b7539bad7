package zk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/pause"
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
	start, again := time.Now(), pause.Backoff{Min: 4 * firstPause, Max: longestPause}
	for round := 1; ; round++ {
		c, err := s.round(ctx, 10*time.Second)
		if err != nil && s.config.Failed != nil {
			s.config.Failed(err)
		}
		noLeader := errors.Is(err, ErrNoLeader)
		passes := errors.Is(err, ErrNoQuorum) || errors.Is(err, ErrHungUp) || errors.Is(err, errUnreached)
		if noLeader && s.config.Leaderless {
			s.config.AnyServer = true
			continue
		}
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			return nil, &ctxerr.Unanswered{Ended: context.Cause(ctx), Why: err}
		case !noLeader && !passes,
			noLeader && round >= leaderRounds,
			time.Since(start) > openPatience:
			return nil, err
		}
		if !pause.Sleep(ctx, again.Next()) {
			return nil, &ctxerr.Unanswered{Ended: context.Cause(ctx), Why: err}
		}
	}
}

// resume connects again, until the session's timeout has passed since it last heard of a server: then the session is
// over, whatever servers say (P5). Requests may arrive although no answer does, and each offer of the session would
// keep it alive, with all that is held in it. The error says that the session is over.
func (s *Session) resume(heard driver.Instant) (*conn, error) {
	timeout := s.Timeout()
	again := pause.Backoff{Min: firstPause, Max: min(longestPause, max(timeout/8, firstPause))}
	for s.ctx.Err() == nil {
		left := heard.Add(timeout).Sub(s.config.Clock.Now())
		if left <= 0 {
			return nil, fmt.Errorf("%w of %v; the last attempt: %w", ErrUnheard, timeout, s.Suspended())
		}
		// An attempt must leave time for another one before the session ends.
		ctx, cancel := context.WithTimeout(s.ctx, left)
		c, err := s.round(ctx, min(max(timeout/4, 500*time.Millisecond), 10*time.Second))
		cancel()
		if err == nil || errors.Is(err, ErrExpired) || errors.Is(err, SessionClosedRequireAuth) {
			return c, err
		}
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
		pause.Sleep(s.ctx, again.Next())
	}
	return nil, ErrClosed
}

// errUnreached says that the leader was not found among the servers that answer.
var errUnreached = errors.New("zk: the leader is none of the servers that answer")

// round tries the servers once, each attempt for so long.
func (s *Session) round(ctx context.Context, each time.Duration) (*conn, error) {
	rctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	addresses, err := s.config.addresses(rctx)
	if err != nil {
		return nil, err
	}
	if s.config.AnyServer {
		return s.anyOf(ctx, addresses, each)
	}
	a := addresses[0]
	if len(addresses) > 1 || !s.isOpen { // no session is opened where it could not stay
		if a, err = s.leaderOf(rctx, addresses); err != nil {
			return nil, err
		}
	}
	actx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	return s.attempt(actx, a)
}

// anyOf tries all servers in a random order.
func (s *Session) anyOf(ctx context.Context, addresses []address, each time.Duration) (*conn, error) {
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	var errs error
	for _, a := range addresses {
		actx, cancel := context.WithTimeout(ctx, each)
		c, err := s.attempt(actx, a)
		cancel()
		if err == nil || errors.Is(err, ErrExpired) || ctx.Err() != nil {
			return c, err
		}
		errs = also(errs, err)
	}
	return nil, fmt.Errorf("zk: no server answers: %w", errs)
}

// also adds what another server said, or why it could not be asked, on one line.
func also(errs, err error) error {
	if errs == nil {
		return err
	}
	return fmt.Errorf("%w; %w", errs, err)
}

// leaderOf asks all servers at once which of them leads. Of two, since one may not know yet that it
// was deposed, it takes the one of the newer epoch.
func (s *Session) leaderOf(ctx context.Context, addresses []address) (address, error) {
	type answer struct {
		address
		info Info
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, len(addresses))
	for _, a := range addresses {
		go func() {
			info, err := s.config.probe(ctx, a, nil)
			answers <- answer{a, info, err}
		}()
	}
	var best *answer
	var errs error
	var unheard, idle, untold, follows bool
	for range addresses {
		a := <-answers
		switch {
		case a.err != nil:
			unheard = true
			errs = also(errs, a.because(a.err))
			continue
		case a.info.Role.leads():
			if best == nil {
				time.AfterFunc(leaderGrace, cancel) // the others are waited for no longer
			}
			if best == nil || a.info.Zxid>>32 > best.info.Zxid>>32 {
				best = &a
			}
			continue
		case a.info.Role == NotServing:
			idle = true
		case a.info.Role == Untold:
			untold = true
		default:
			follows = true
		}
		errs = also(errs, fmt.Errorf("%s: %s", a.dial, a.info.Role.word()))
	}
	switch {
	case best != nil:
		return best.address, nil
	case follows && unheard && !s.config.Leaderless:
		// The leader may be one that cannot be reached now. Another server would answer for it (P1).
		return address{}, fmt.Errorf("%w: %w", errUnreached, errs)
	case follows || untold:
		return address{}, fmt.Errorf("%w: %w", ErrNoLeader, errs)
	case idle:
		return address{}, fmt.Errorf("%w: %w", ErrNoQuorum, errs)
	}
	return address{}, fmt.Errorf("zk: no server answers: %w", errs)
}

// because says why nobody could be asked at an address.
func (a address) because(err error) error {
	hungUp := func(end error) bool { return errors.Is(err, end) }
	if slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}, hungUp) {
		return fmt.Errorf("%s: %w: %w", a.dial, ErrHungUp, err)
	}
	return fmt.Errorf("%s: %w", a.dial, err)
}

// attempt connects to one server and makes sure that it leads.
func (s *Session) attempt(ctx context.Context, a address) (_ *conn, err error) {
	nc, err := s.config.dial(ctx, a)
	if err != nil {
		return nil, a.because(err)
	}
	defer func() {
		if err != nil {
			nc.Close()
		}
	}()
	r, asked := newReader(nc), s.config.Clock.Now()
	s.mu.Lock()
	zxid := s.zxid
	s.mu.Unlock()
	offer := connected{timeout: s.config.Timeout, password: make([]byte, passwordSize)}
	if s.isOpen { // else each attempt opens a session: that of an attempt that fails ends by itself
		offer.id, offer.password = s.id, s.password
	}
	granted, err := handshake(ctx, nc, r, offer, zxid)
	if err != nil {
		return nil, a.because(err)
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
		if !info.Role.leads() { // it did a moment ago
			return nil, fmt.Errorf("%w: %s: %s", errUnreached, a.dial, info.Role.word())
		}
	}
	nc.SetDeadline(time.Time{})
	return &conn{s: s, nc: nc, r: r, at: a, heard: asked, wake: make(chan struct{}, 1), over: make(chan struct{})}, nil
}

// granted takes in what a server has granted. A session that was opened keeps the timeout that its users were told:
// where maxSessionTimeout was lowered, the session may end earlier, so it is given up (P1).
func (s *Session) granted(g connected) error {
	switch {
	case g.timeout == 0 && !s.isOpen:
		return errors.New("the server opens no session")
	case g.timeout == 0:
		return ErrExpired
	case !s.isOpen:
		s.id, s.password, s.timeout = g.id, g.password, g.timeout
	case g.timeout < s.timeout:
		return fmt.Errorf("%w: it would last for %v from now on, not for %v: maxSessionTimeout was lowered", ErrExpired, g.timeout, s.timeout)
	}
	return nil
}
