package holdfast_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
)

// The engine is explored in every order of its events (internal/core/engine). The code around it makes
// these events: it calls the driver or waits, without the client's mutex, and tells the engine what
// has come of it. These are its seams. The tests here let something else happen in each of them, in
// virtual time: everybody must end, nobody may hold a name beside another, and nothing may be left.

var seamsOnly = flag.String("seams.only", "", "only cases whose names contain this")

// TestSeams: whatever happens while the client waits for its driver, its promises hold.
func TestSeams(t *testing.T) {
	names := slices.Sorted(maps.Keys(intruders))
	for variant := range variants {
		if raceEnabled && variant != "a mutex" {
			continue // it finds nothing more in the others, and takes ten times as long
		}
		for seam := range seams {
			t.Run(variant+"/"+seam, func(t *testing.T) {
				for _, when := range moments {
					for _, intruder := range names {
						play(t, &scene{variant: variant, seam: seam, when: when, intruder: intruder})
					}
				}
			})
		}
	}
}

// variants are the locks and the stores.
var variants = map[string]struct {
	options holdfast.Options
	polled  bool
}{
	"a mutex":        {},
	"a minimum hold": {options: holdfast.Options{MinHold: 50 * time.Millisecond}},
	"no renewal":     {options: holdfast.Options{RenewEvery: -1}},
	"no queue":       {polled: true},
}

// moment is when, in a call of the driver, everything else happens.
type moment string

const (
	before moment = "before the store is asked"
	after  moment = "before the answer is here"
	told   moment = "before the engine is told of the answer"
	lost   moment = "and the answer is lost"
	late   moment = "and the store is asked later"
	fails  moment = "and the store is not asked"
	panics moment = "and the driver panics"
)

var moments = []moment{before, after, told, lost, late, fails, panics}

// settles is for how long a call takes in which something else happens.
const settles = 7 * time.Millisecond

// scene is one case.
type scene struct {
	variant, seam, intruder string
	when                    moment

	*world
	ledger
	c, other     *holdfast.Client
	lock, theirs *holdfast.Lock
	trap         *trap
	ctx          context.Context // the subject's
	cancel       context.CancelFunc

	people  int
	present map[string]bool           // those who have not ended
	told    map[holdfast.Token]string // what the client's hooks have been told of each hold
	lease   *holdfast.Lease           // the subject's
	closed  atomic.Bool               // Close has begun
	quiet   bool                      // Close has returned nil
}

func (s *scene) String() string {
	return strings.Join([]string{s.variant, s.seam, string(s.when), s.intruder}, "/")
}

// play plays one case.
func play(t *testing.T, s *scene) {
	if !strings.Contains(s.String(), *seamsOnly) || s.when == panics && slices.Contains(background, s.seam) {
		return
	}
	inWorld(t, func(w *world) {
		s.world = w
		w.store = memlock.NewStore(&memlock.Options{Clock: w.clock, TokenBlock: block})
		s.present, s.told = map[string]bool{}, map[holdfast.Token]string{}
		v := variants[s.variant]
		s.trap = newTrap(w.store.Client(), v.polled, s.when, s.meanwhile)
		s.c = w.clientOf(s.trap, &holdfast.ClientOptions{Logger: slog.New(slog.DiscardHandler), Events: holdfast.Events{
			Acquired: s.tells("", "held"), Lost: s.tells("held", "over"), Released: s.tells("held", "over"),
		}})
		s.other, _ = w.client(nil)
		s.lock, s.theirs = s.c.Mutex("x", &v.options), s.other.Mutex("x", nil)
		s.ctx, s.cancel = context.WithCancel(w.ctx)
		defer s.cancel()
		seams[s.seam](s)
		s.ends()
		if err := s.c.Close(); err == nil && !s.closed.Load() && !s.c.Idle() {
			s.problem("P9: the engine has not forgotten everything")
		}
		for token, state := range s.told {
			if state != "over" {
				s.problem("the end of the hold with token %d was not told", token)
			}
		}
		for _, text := range s.problems {
			t.Errorf("%v: %s", s, text)
		}
	})
}

// tells returns a hook: each hold's beginning is told before its end, once.
func (s *scene) tells(from, to string) func(holdfast.Event) {
	return func(e holdfast.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if was := s.told[e.Token]; was != from {
			s.problems = append(s.problems, fmt.Sprintf("the hold with token %d was %q when it was told to be %q", e.Token, was, to))
		}
		s.told[e.Token] = to
	}
}

// meanwhile is called in the seam.
func (s *scene) meanwhile() {
	go intruders[s.intruder](s)
	time.Sleep(settles)
	if s.passes() {
		time.Sleep(time.Minute)
	}
}

// passes reports whether the store is silent for a minute.
func (s *scene) passes() bool { return s.intruder == "a minute passes" }

// ends waits until everybody has ended and the store has forgotten them.
func (s *scene) ends() {
	start := time.Now()
	within := 40 * time.Second // a TTL and some polls
	if s.passes() {
		within += 2 * time.Minute
	}
	time.Sleep(50 * time.Millisecond)
	for s.anybody() && time.Since(start) < within {
		time.Sleep(10 * time.Millisecond)
	}
	s.mu.Lock()
	for who := range s.present {
		s.problems = append(s.problems, fmt.Sprintf("P7: %s has not ended within %v", who, within))
	}
	quiet := s.quiet
	s.mu.Unlock()
	// Each withdrawal is repeated within a second, and a minimum hold is over soon.
	if !s.closed.Load() {
		time.Sleep(3 * time.Second)
	} else if !quiet {
		time.Sleep(time.Minute)
	} else if s.when == late {
		time.Sleep(lateBy)
	}
	info, err := s.other.Inspect(s.Context(), "x")
	if err != nil || len(info.Holders)+len(info.Waiters) > 0 {
		s.problem("P6: the store still has %+v (%v)", info, err)
	}
	time.Sleep(3 * time.Minute) // what was delayed by a minute has come back
}

func (s *scene) anybody() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.present) > 0
}

// person is a goroutine that does something and must end.
func (s *scene) person(who string, f func(who string)) {
	s.mu.Lock()
	s.people++
	who = fmt.Sprintf("%s (%d)", who, s.people)
	s.present[who] = true
	s.mu.Unlock()
	go func() {
		defer func() {
			if p := recover(); p != nil && p != any(errTrap) {
				panic(p)
			}
			s.mu.Lock()
			delete(s.present, who)
			s.mu.Unlock()
		}()
		f(who)
	}()
}

// user is a person who takes a lock, works for 3 ms and releases it. All who do not give up get it,
// unless they met the error of the trap, or the client was closed.
func (s *scene) user(ctx context.Context, who string, l *holdfast.Lock) {
	s.person(who, func(who string) {
		lease, err := l.Acquire(ctx)
		switch {
		case err == nil:
			s.work(who, lease)
			time.Sleep(3 * time.Millisecond)
			s.done(lease)
		case ctx.Err() != nil, errors.Is(err, errTrap), s.closed.Load() && errors.Is(err, holdfast.ErrClosed):
		default:
			s.problem("%s got the error %v", who, err)
		}
	})
}

// subject is the person in whose way the seam is. It takes the lock, does f with it, and releases it.
func (s *scene) subject(f func(*holdfast.Lease)) {
	s.person("the subject", func(who string) {
		lease, err := s.lock.Acquire(hookedErr{s.ctx, s.trap})
		if err != nil {
			return
		}
		s.mu.Lock()
		s.lease = lease
		s.mu.Unlock()
		s.work(who, lease)
		defer s.done(lease)
		f(lease)
	})
}

func nothing(*holdfast.Lease) {}

// occupied lets the other client hold the name for a while.
func (s *scene) occupied(d time.Duration) {
	lease := s.acquire(s.theirs)
	s.work("the occupant", lease)
	go func() {
		time.Sleep(d)
		s.done(lease)
	}()
}

// followers are those who wait behind the subject.
func (s *scene) followers(n int) {
	for range n {
		s.user(s.Context(), "a follower", s.lock)
	}
}

// cohort lets the subject get the name from another of its client, and one more wait behind it.
func (s *scene) cohort(f func(*holdfast.Lease)) {
	s.occupied(5 * time.Millisecond)
	s.followers(2)
	time.Sleep(time.Millisecond)
	s.subject(f)
	s.followers(1)
}

// works has work under the lease in whose end something else happens.
func (s *scene) works(lease *holdfast.Lease) {
	_, _ = lease.WithContext(hookedContext{s.Context(), make(chan struct{}), s.meanwhile})
}

func (s *scene) renew(lease *holdfast.Lease) {
	s.trap.arm("Renew")
	_ = lease.Renew(s.ctx)
}

// queues lets the subject wait behind another who leaves after d.
func queues(method string, d time.Duration) func(*scene) {
	return func(s *scene) {
		s.occupied(d)
		s.trap.arm(method)
		s.subject(nothing)
	}
}

// holds lets the subject hold the name until it is renewed.
func holds(method string) func(*scene) {
	return func(s *scene) {
		s.subject(func(*holdfast.Lease) {
			s.trap.arm(method)
			time.Sleep(11 * time.Second)
		})
	}
}

// background are the seams in which no caller could recover a panic of the driver: it ends the process.
var background = []string{"a renewal in the background", "the question for shards", "a withdrawal"}

// seams are the ways to them.
var seams = map[string]func(*scene){
	"Try": func(s *scene) {
		s.trap.arm("Try")
		s.subject(nothing)
	},
	"TryAcquire": func(s *scene) {
		s.trap.arm("Try")
		s.person("the subject", func(who string) {
			if lease, err := s.lock.TryAcquire(s.ctx); err == nil {
				s.work(who, lease)
				s.done(lease)
			}
		})
	},
	"Enqueue, soon free": queues("Enqueue", 5*time.Millisecond),
	"Enqueue":            queues("Enqueue", 40*time.Millisecond),
	"Wait, soon free":    queues("Wait", 5*time.Millisecond),
	"Wait":               queues("Wait", 40*time.Millisecond),
	"the renewal of a stale grant": func(s *scene) {
		s.trap.slowTry = 25 * time.Second
		s.trap.arm("Renew")
		s.subject(nothing)
	},
	"a renewal in the background": holds("Renew"),
	"the question for shards":     holds("Shard"),
	"a withdrawal": func(s *scene) {
		s.occupied(5 * time.Millisecond)
		ctx, cancel := context.WithTimeout(s.Context(), 2*time.Millisecond)
		defer cancel()
		s.trap.arm("Release")
		_, _ = s.lock.Acquire(ctx)
		s.subject(nothing)
	},
	"Release": func(s *scene) {
		s.trap.arm("Release")
		s.subject(nothing)
	},
	"Release after the cohort": func(s *scene) {
		s.cohort(func(*holdfast.Lease) {
			time.Sleep(15 * time.Millisecond)
			s.trap.arm("Release")
		})
	},
	"work that stops":             func(s *scene) { s.subject(s.works) },
	"work that stops in a cohort": func(s *scene) { s.cohort(s.works) },
	"Renew":                       func(s *scene) { s.subject(s.renew) },
	"Renew in a cohort":           func(s *scene) { s.cohort(s.renew) },
	"Downgrade in a cohort": func(s *scene) {
		s.cohort(func(lease *holdfast.Lease) {
			s.trap.arm("Downgrade")
			_ = lease.Downgrade(s.ctx)
		})
	},
}

// intruders are what happens meanwhile.
var intruders = map[string]func(*scene){
	"nothing":               func(*scene) {},
	"the caller gives up":   func(s *scene) { s.cancel() },
	"a minute passes":       func(s *scene) { time.Sleep(time.Minute) },
	"the host is suspended": func(s *scene) { s.clock.suspend(time.Minute) },
	"the client is closed": func(s *scene) {
		s.closed.Store(true)
		s.person("the closer", func(string) {
			err := s.c.Close()
			s.mu.Lock()
			s.quiet = err == nil
			s.mu.Unlock()
		})
	},
	"an operator breaks it": func(s *scene) {
		s.mu.Lock()
		s.broken = true
		s.mu.Unlock()
		info, _ := s.other.Inspect(s.Context(), "x")
		for _, h := range info.Holders {
			_ = s.other.Break(s.Context(), "x", h.Token)
		}
	},
	"another comes":    func(s *scene) { s.user(s.Context(), "another", s.lock) },
	"a stranger comes": func(s *scene) { s.user(s.Context(), "a stranger", s.theirs) },
	"two others come": func(s *scene) {
		s.user(s.Context(), "another", s.lock)
		s.user(s.Context(), "a third", s.lock)
	},
	"one comes with other options": func(s *scene) {
		s.user(s.Context(), "another", s.c.Mutex("x", &holdfast.Options{TTL: 29 * time.Second}))
	},
	"one comes who gives up soon": func(s *scene) { s.comesFor(3 * time.Millisecond) },
	"one comes who gives up":      func(s *scene) { s.comesFor(30 * time.Millisecond) },
	"a try comes": func(s *scene) {
		s.person("the try", func(who string) {
			if lease, err := s.lock.TryAcquire(s.Context()); err == nil {
				s.work(who, lease)
				s.done(lease)
			}
		})
	},
	"it is released": func(s *scene) {
		if lease := s.subjects(); lease != nil {
			s.person("the releaser", func(string) { s.done(lease) })
		}
	},
	"it is entered again": func(s *scene) {
		if lease := s.subjects(); lease != nil {
			s.person("one who enters again", func(string) {
				if again, err := lease.Reenter(); err == nil {
					time.Sleep(10 * time.Millisecond)
					_ = again.Release()
				}
			})
		}
	},
}

// comesFor lets somebody come who gives up after d.
func (s *scene) comesFor(d time.Duration) {
	ctx, cancel := context.WithTimeout(s.Context(), d)
	context.AfterFunc(ctx, cancel)
	s.user(ctx, "one who gives up", s.lock)
}

// subjects returns the subject's lease, or nil.
func (s *scene) subjects() *holdfast.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease
}

var errTrap = errors.New("the trap")

// trap is a driver in which something else happens in one call of one method.
type trap struct {
	*faulty
	polled    bool
	slowTry   time.Duration // of the first
	when      moment
	meanwhile func()

	mu     sync.Mutex
	method string // "": none
}

func newTrap(d driver.Driver, polled bool, when moment, meanwhile func()) *trap {
	f := &faulty{Forward: wrap.Forward{Driver: d}}
	t := &trap{faulty: f, polled: polled, when: when, meanwhile: meanwhile}
	f.try, f.enqueue, f.wait = t.asking("Try", d.Try), t.asking("Enqueue", f.Forward.Enqueue), t.asking("Wait", f.Forward.Wait)
	f.renew = func(ctx context.Context, g []driver.Grant) []driver.Renewal {
		return spring(t, ctx, "Renew", func(ctx context.Context) []driver.Renewal { return d.Renew(ctx, g) },
			func(err error) []driver.Renewal { return slices.Repeat([]driver.Renewal{{Err: err}}, len(g)) })
	}
	f.release = func(ctx context.Context, g []driver.Grant) []error {
		return spring(t, ctx, "Release", func(ctx context.Context) []error { return d.Release(ctx, g) },
			func(err error) []error { return slices.Repeat([]error{err}, len(g)) })
	}
	f.shard = func(r driver.Request) string {
		return spring(t, context.Background(), "Shard", func(context.Context) string { return r.Name }, func(error) string { return "" })
	}
	return t
}

// arm chooses the method whose next call is the one.
func (t *trap) arm(method string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.method = method
}

// springs reports whether a call of the method is the one.
func (t *trap) springs(method string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.method != method {
		return false
	}
	t.method = ""
	return true
}

// lateBy is how much later than its answer a late request is executed.
const lateBy = time.Second

// spring makes a call. Failed is its result with an error.
func spring[T any](
	t *trap, ctx context.Context, method string, call func(context.Context) T, failed func(error) T,
) (out T) {
	if !t.springs(method) {
		return call(ctx)
	}
	switch t.when {
	case before:
		t.meanwhile()
		return call(ctx)
	case told:
		t.arm("Err")
		return call(ctx)
	case late:
		time.AfterFunc(lateBy, func() { call(context.WithoutCancel(ctx)) })
		t.meanwhile()
		return failed(driver.Uncertain(errTrap))
	case fails:
		t.meanwhile()
		return failed(errTrap)
	}
	out = call(ctx)
	t.meanwhile()
	switch t.when {
	case lost:
		return failed(driver.Uncertain(errTrap))
	case panics:
		panic(errTrap)
	}
	return out
}

// hookedErr is a caller's context. The client asks for its error between the answer of the driver and
// the step of the engine.
type hookedErr struct {
	context.Context
	trap *trap
}

func (h hookedErr) Err() error {
	if h.trap.springs("Err") {
		h.trap.meanwhile()
	}
	return h.Context.Err()
}

func (t *trap) Lacks(ability any) bool {
	if _, queuer := ability.(*driver.Queuer); queuer {
		return t.polled
	}
	return t.faulty.Lacks(ability)
}

// granted is what a request for a hold returns.
type granted struct {
	grant driver.Grant
	err   error
}

// asking is a request for a hold in which something else may happen.
func (t *trap) asking(method string, ask asks) asks {
	return func(ctx context.Context, r driver.Request) (driver.Grant, error) {
		if method == "Try" {
			t.mu.Lock()
			slow := t.slowTry
			t.slowTry = 0
			t.mu.Unlock()
			defer time.Sleep(slow)
		}
		out := spring(t, ctx, method, func(ctx context.Context) granted {
			g, err := ask(ctx, r)
			return granted{g, err}
		}, func(err error) granted { return granted{err: err} })
		return out.grant, out.err
	}
}

func (t *trap) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	return t.asking("Downgrade", func(ctx context.Context, _ driver.Request) (driver.Grant, error) {
		return t.Forward.Downgrade(ctx, g)
	})(ctx, g.Request)
}
