package cell

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// Event tells what has happened.
	Event(*cellv1.Event)
	// Complete tells all holds and places that the session had at a revision of the cell: what began
	// before it and is not among them is gone. Of what happened before nothing else is told: the client
	// has come to another member, or was cut off for long.
	Complete(all []*cellv1.Holding, revision int64)
	// Over tells that the session has ended, and why. Nothing is told after it.
	Over(error)
}

// Session is a session that is kept alive until it is closed or over. Safe for concurrent use.
type Session struct {
	client   *Client
	text     string // what calls want
	id       string
	ttl      time.Duration
	observer Observer

	life context.Context
	die  context.CancelCauseFunc
	done chan struct{} // closed when nothing is kept alive any more

	taking sync.Mutex // while an answer is taken in
	cursor string     // of the last answer

	mu       sync.Mutex
	trusted  Extension
	places   Extension
	extended chan struct{} // closed when trusted changes
	at       int32         // the member at which the parked call is
	giveUp   *time.Timer   // gives that call up
	watches  map[string]*watch
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

// ErrSessionOver says that a session has expired, or was closed or killed.
var ErrSessionOver = errors.New("the session is over")

// Open opens a session.
func (c *Client) Open(ctx context.Context, o SessionOptions) (*Session, error) {
	s := &Session{client: c, observer: o.Observer, done: make(chan struct{}), extended: make(chan struct{}), watches: map[string]*watch{}}
	if s.observer == nil {
		s.observer = silent{}
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

func (silent) Event(*cellv1.Event)               {}
func (silent) Complete([]*cellv1.Holding, int64) {}
func (silent) Over(error)                        {}

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

// Extend extends the session now, and makes claims whole holds. Everything that had been lost before is
// told before it returns.
func (s *Session) Extend(ctx context.Context, claims ...*cellv1.Claim) error {
	ctx, cancel := context.WithTimeout(ctx, min(s.ttl/3, requestWithin))
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if len(claims) == 0 && s.awaitParked(ctx) {
		return nil
	}
	for {
		if err := s.Err(); err != nil {
			return err
		}
		some := claims[:min(len(claims), maxClaims)]
		claims = claims[len(some):]
		at := s.client.current.Load()
		if err := s.call(ctx, at, &cellv1.KeepAliveRequest{Now: true, Claims: some}); err != nil {
			return err
		}
		s.mu.Lock()
		switch {
		case s.giveUp == nil: // nothing is parked yet
		case s.at != at:
			s.giveUp.Reset(0)
		default:
			s.giveUp.Reset(s.patience())
		}
		s.mu.Unlock()
		if len(claims) == 0 {
			return nil
		}
	}
}

// awaitParked reports whether the answer to the parked call, if that is due soon, has extended the session from now on, at
// the earliest: then no other call is needed.
func (s *Session) awaitParked(ctx context.Context) bool {
	now := s.client.clock.Now()
	s.mu.Lock()
	trusted, extended := s.trusted, s.extended
	s.mu.Unlock()
	slack := s.ttl / 24
	due := trusted.Since.Add(s.ttl / 3).Sub(now)
	if due > slack || due < -slack {
		return false
	}
	select {
	case <-extended:
	case <-time.After(due + slack):
	case <-ctx.Done():
	}
	trusted, _ = s.Trusted()
	return trusted.Since >= now
}

// maxClaims is how many claims one call makes whole holds.
const maxClaims = 1000

// Close ends the session, and everything that it has.
func (s *Session) Close(ctx context.Context) error {
	s.die(ErrSessionOver)
	<-s.done
	_, err := Call(ctx, s.client, true, Sessions, cellv1connect.SessionsClient.Close, &cellv1.CloseRequest{Session: s.text})
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
		if s.park() == nil {
			failures = 0
			wait.Reset()
		} else if failures++; failures >= len(s.client.members) { // before that other members are asked at once
			pause.Sleep(s.life, wait.Next())
		}
	}
}

// park makes a call that is parked. The member answers it when a third of the TTL is over since the session was last
// extended. If it has not, soon after, another member is asked, while there is time; so it is if calls of Extend have
// gone to another one.
func (s *Session) park() error {
	ctx, cancel := context.WithCancel(s.life)
	defer cancel()
	at := s.client.current.Load()
	s.mu.Lock()
	s.at, s.giveUp = at, time.AfterFunc(s.patience(), cancel)
	defer s.giveUp.Stop()
	s.mu.Unlock()
	return s.call(ctx, at, &cellv1.KeepAliveRequest{})
}

// patience is how long a parked call waits for its answer after the session was extended.
func (s *Session) patience() time.Duration { return s.ttl/2 + min(s.ttl/8, maxLate) }

// Bounds of calls.
const (
	maxLate       = 3 * time.Second
	requestWithin = 5 * time.Second
)

// call makes one call of KeepAlive at a member, and takes in what it answers.
func (s *Session) call(ctx context.Context, at int32, m *cellv1.KeepAliveRequest) error {
	nonce := crand.Text()[:12]
	m.Session, m.Nonce = s.text, nonce
	s.taking.Lock()
	m.Cursor = s.cursor
	s.taking.Unlock()
	sent := s.client.clock.Now()
	r, err := s.client.members[at].Sessions.KeepAlive(ctx, m)
	switch reason := ReasonOf(err); {
	case reason == cellv1.Reason_REASON_SESSION_OVER, reason == cellv1.Reason_REASON_NOT_YOURS:
		s.end(fmt.Errorf("%w: %w", ErrSessionOver, err))
		return err
	case err != nil:
		if s.life.Err() == nil {
			s.client.leave(at)
		}
		return err
	case r.Nonce != nonce:
		return errors.New("an answer to another call has come")
	}
	s.take(sent, r)
	if r.MemberStopping {
		s.client.leave(at)
	}
	return nil
}

// end tells that the session is over, once.
func (s *Session) end(why error) {
	s.taking.Lock()
	defer s.taking.Unlock()
	if s.life.Err() == nil {
		s.observer.Over(why)
		s.die(why)
	}
}

// take takes in an answer. What has happened is told before anybody learns that the session was
// extended: so a hold that has gone is not trusted any longer.
func (s *Session) take(sent driver.Instant, r *cellv1.KeepAliveResponse) {
	s.taking.Lock()
	defer s.taking.Unlock()
	if s.life.Err() != nil || !s.tell(r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = s.places.Later(sent, r.Places)
	if later := s.trusted.Later(sent, r.Session); later != s.trusted {
		s.trusted = later
		close(s.extended)
		s.extended = make(chan struct{})
	}
}

// tell tells the observer what is new to it. Two calls may be under way at the same time, so an answer
// may tell what is known already, or come after a later one. It reports false if something is missing
// before what it tells: then the next call asks for all.
func (s *Session) tell(r *cellv1.KeepAliveResponse) bool {
	stream, last, ok := parseCursor(r.Cursor)
	known, seen, _ := parseCursor(s.cursor)
	isNew := stream != known || last > seen
	switch {
	case !ok: // a later call tells
		return false
	case r.Complete && (isNew || last == seen):
		s.observer.Complete(r.Holdings, r.Revision)
	case r.Complete:
		return true
	case stream != known, last > seen+uint64(len(r.Events)), len(r.Events) > 0 && r.Events[0].Number > seen+1:
		s.cursor = ""
		return false
	}
	for _, e := range r.Events {
		switch node := e.GetNode(); {
		case stream == known && e.Number <= seen:
		case node != nil:
			s.happened(node)
		default:
			s.observer.Event(e)
		}
	}
	if isNew {
		s.cursor = r.Cursor
	}
	return true
}

// parseCursor takes a cursor apart: the name of a stream of events, and the number of one.
func parseCursor(text string) (stream string, number uint64, ok bool) {
	stream, digits, ok := strings.Cut(text, ":")
	number, err := strconv.ParseUint(digits, 36, 64)
	return stream, number, ok && err == nil
}
