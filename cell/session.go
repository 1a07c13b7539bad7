package cell

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// SessionOptions configure a session.
type SessionOptions struct {
	// TTL is for how long the cell keeps the session if it hears nothing. 0: 30 s.
	TTL time.Duration
	// LockDelay is for how much longer the names of its holds stay closed when it has ended without
	// releasing them.
	LockDelay time.Duration
	// Note is what operators see.
	Note string
	// Observer is told what happens to what the session has. nil: nobody is.
	Observer Observer
}

// Observer is told what happens to a session. Its methods are called one after the other, and must not
// block.
type Observer interface {
	// Told tells what an answer to a parked call says of holds and places: what has happened to them, in order. If it is
	// Complete, it first tells all that the session had at a revision of the cell: what began before and is not among
	// them is gone.
	Told(*cellv1.KeepAliveResponse)
	// Over tells that the session has ended, and why. Nothing is told after it.
	Over(error)
}

// Session is a session that is kept alive until it is closed or over. One goroutine makes its calls of KeepAlive, one
// after the other. Safe for concurrent use.
type Session struct {
	client   *Client
	text     string // what calls want
	id       string
	ttl      time.Duration
	observer Observer
	cursor   string // of the last answer

	life context.Context
	die  context.CancelCauseFunc
	done chan struct{} // closed when nothing is kept alive any more

	mu       sync.Mutex
	trusted  Extension
	places   Extension
	wanted   driver.Instant         // somebody waits for an extension that began then or later
	claims   []*cellv1.Claim        // to be told
	told     int                    // how many claims have been told
	answered chan struct{}          // closed when an answer has been taken in
	failed   error                  // of the last call
	parked   context.CancelFunc     // cuts the call short that is parked; nil: none is
	watches  map[string]chan *Event // what has happened to a path, until it is yielded
}

// Extension is a time for which something lasts: Valid from Since on.
type Extension struct {
	Since driver.Instant
	Valid time.Duration
}

// Later returns the extension, or that of which an answer to a call that was sent then tells, whichever began
// later.
func (e Extension) Later(sent driver.Instant, told *cellv1.Extension) Extension {
	if told == nil || sent.Add(told.After.AsDuration()) <= e.Since {
		return e
	}
	return Extension{sent.Add(told.After.AsDuration()), told.Ttl.AsDuration()}
}

// ModeOf is a mode in the words of the API, and DriverMode one of the API in those of package driver: the API's modes
// are in the same order, behind MODE_UNSPECIFIED, which is as MODE_EXCLUSIVE.
func ModeOf(m driver.Mode) cellv1.Mode     { return cellv1.Mode(m) + cellv1.Mode_MODE_EXCLUSIVE }
func DriverMode(m cellv1.Mode) driver.Mode { return driver.Mode(max(m-cellv1.Mode_MODE_EXCLUSIVE, 0)) }

// DriverInfo is what the API shows of a name in the words of package driver.
func DriverInfo(l *cellv1.Lock) driver.Info {
	info := driver.Info{Name: l.GetName(), Slots: int(l.GetSlots()), ClosedFor: l.GetClosedFor().AsDuration()}
	for _, h := range l.GetHolders() {
		info.Holders = append(info.Holders, driver.Holder{
			Owner: h.Request, Mode: DriverMode(h.Mode), Permits: int(h.Permits), Token: driver.Token(h.Token),
			Note: h.Note, Held: h.Held.AsDuration(), Expires: h.Expires.AsDuration(),
		})
	}
	for _, w := range l.GetWaiters() {
		info.Waiters = append(info.Waiters, driver.Waiter{
			Owner: w.Request, Mode: DriverMode(w.Mode), Permits: int(w.Permits), Note: w.Note, Waiting: w.Waiting.AsDuration(),
		})
	}
	return info
}

// ErrSessionOver says that a session has expired, or was closed or killed.
var ErrSessionOver = errors.New("the session is over")

// Open opens a session.
func (c *Client) Open(ctx context.Context, o SessionOptions) (*Session, error) {
	s := &Session{
		client: c, observer: cmp.Or[Observer](o.Observer, silent{}), watches: map[string]chan *Event{},
		done: make(chan struct{}), answered: make(chan struct{}),
	}
	// An open that is not answered leaves a session that nobody uses, until its TTL is over.
	err := c.Do(ctx, true, func(ctx context.Context, m *Member) error {
		sent := c.clock.Now()
		r, err := m.Sessions.Open(ctx, &cellv1.OpenRequest{
			Ttl: durationpb.New(o.TTL), LockDelay: durationpb.New(o.LockDelay), Note: o.Note,
		})
		if err == nil {
			s.text, s.id, s.ttl, s.cursor = r.Session, r.Id, r.Ttl.AsDuration(), r.Cursor
			s.trusted = Extension{sent.Add(r.ExtendedAfter.AsDuration()), s.ttl}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.life, s.die = context.WithCancelCause(context.Background())
	go s.keepAlive()
	return s, nil
}

type silent struct{}

func (silent) Told(*cellv1.KeepAliveResponse) {}
func (silent) Over(error)                     {}

// ID returns the session's id, which is no secret.
func (s *Session) ID() string { return s.id }

// Credential returns what calls want as their session. It is a secret.
func (s *Session) Credential() string { return s.text }

// Trusted returns for how long the session may be trusted, and for how long its places and claims.
func (s *Session) Trusted() (session, places Extension) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trusted, s.places
}

// Err returns why the session is over, or nil.
func (s *Session) Err() error {
	return context.Cause(s.life)
}

// Extend extends the session, and makes claims whole holds. Everything that had been lost before is told before it
// returns. If the answer to the parked call is due, that extends the session: so an idle session needs no other call.
// Else the parked call is cut short, and the next one is answered at once, for all that wait for it.
func (s *Session) Extend(ctx context.Context, claims ...*cellv1.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, min(s.ttl/3, requestWithin))
	defer cancel()
	asked, late, toTell := s.client.clock.Now(), min(s.ttl/16, 2*time.Second), 0
	s.mu.Lock()
	delay := s.trusted.Since.Add(s.ttl/3 + late*3/2).Sub(asked) // the answer is due before that
	if len(claims) > 0 {
		s.claims = append(s.claims, claims...)
		toTell = s.told + len(s.claims)
	}
	s.mu.Unlock()
	if toTell > 0 || delay > 3*late {
		delay = 0
	}
	for hurry := time.After(delay); ; {
		s.mu.Lock()
		done, answered := s.trusted.Since >= asked && s.told >= toTell, s.answered
		s.mu.Unlock()
		if done {
			return s.Err()
		}
		select {
		case <-answered:
		case <-hurry:
			s.mu.Lock()
			if s.wanted = max(s.wanted, asked); s.parked != nil {
				s.parked()
			}
			s.mu.Unlock()
		case <-s.life.Done():
			return s.Err()
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			return cmp.Or(s.failed, ctx.Err())
		}
	}
}

// maxClaims is how many claims one call makes whole holds.
const maxClaims = 1000

// Close ends the session, and everything that it has.
func (s *Session) Close(ctx context.Context) error {
	s.die(ErrSessionOver)
	<-s.done
	_, err := Call(ctx, s.client, true, cellv1connect.SessionsClient.Close, &cellv1.CloseRequest{Session: s.text})
	if ReasonOf(err) == cellv1.Reason_REASON_SESSION_OVER {
		return nil
	}
	return err
}

// Abandon stops keeping the session alive. It ends with its TTL.
func (s *Session) Abandon() {
	s.die(ErrSessionOver)
	<-s.done
}

// keepAlive always has a call parked at a member, until the session is lost by the client's own clock: calls may arrive
// although no answer does, and each would keep what the session has (P5).
func (s *Session) keepAlive() {
	defer close(s.done)
	failures, wait := 0, pause.Backoff{Min: 10 * time.Millisecond, Max: min(640*time.Millisecond, s.ttl/12)}
	for s.life.Err() == nil {
		if trusted, _ := s.Trusted(); s.client.clock.Now() >= trusted.Since.Add(trusted.Valid) {
			s.end(fmt.Errorf("%w: no member has extended it for %v", ErrSessionOver, s.ttl))
			return
		}
		err := s.call()
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
		if err == nil {
			failures = 0
			wait.Reset()
		} else if failures++; failures >= len(s.client.members) { // before that other members are asked at once
			pause.Sleep(s.life, wait.Next())
		}
	}
}

// Bounds of calls.
const (
	maxLate       = 3 * time.Second
	requestWithin = 5 * time.Second
)

// call makes one call, and takes in its answer. Unless somebody waits for an extension, the member parks the call until
// two fifths of the TTL are over since the session was last extended. If the member has not answered soon after, another
// one is asked, while there is time.
func (s *Session) call() error {
	s.mu.Lock()
	m := &cellv1.KeepAliveRequest{
		Session: s.text, Nonce: crand.Text()[:12], Cursor: s.cursor, Claims: s.claims[:min(len(s.claims), maxClaims)],
	}
	m.Now = len(m.Claims) > 0 || s.wanted > s.trusted.Since
	patience := s.ttl/2 + min(s.ttl/8, maxLate)
	if m.Now {
		patience = min(s.ttl/2, maxLate)
	}
	ctx, cancel := context.WithTimeout(s.life, patience)
	defer cancel()
	if s.parked = cancel; m.Now {
		s.parked = nil
	}
	s.mu.Unlock()
	at, sent := s.client.current.Load(), s.client.clock.Now()
	r, err := s.client.members[at].Sessions.KeepAlive(ctx, m)
	switch reason := ReasonOf(err); {
	case reason == cellv1.Reason_REASON_SESSION_OVER, reason == cellv1.Reason_REASON_NOT_YOURS:
		s.end(fmt.Errorf("%w: %w", ErrSessionOver, err))
		return err
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return nil // it was cut short, or the session is closed
	case err == nil && r.Nonce != m.Nonce:
		err = errors.New("an answer to another call has come")
	}
	if err != nil || r.MemberStopping {
		s.client.leave(at)
	}
	if err != nil || s.life.Err() != nil || r.Cursor == "" { // another call of the session is parked, and tells
		return err
	}
	// What has happened is told before the extension: so a hold that has gone is not trusted any longer (P2).
	s.observer.Told(r)
	for _, e := range r.Events {
		if node := e.GetNode(); node != nil {
			s.happened(node)
		}
	}
	s.cursor = r.Cursor
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trusted, s.places = s.trusted.Later(sent, r.Session), s.places.Later(sent, r.Places)
	s.claims, s.told = s.claims[len(m.Claims):], s.told+len(m.Claims)
	close(s.answered)
	s.answered = make(chan struct{})
	return nil
}

// end tells that the session is over, unless it is closed.
func (s *Session) end(why error) {
	if s.life.Err() == nil {
		s.observer.Over(why)
		s.die(why)
	}
}
