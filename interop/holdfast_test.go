//go:build soak

package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/election"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/redisson"
	"github.com/holdfastlock/holdfast/zklock"
)

// holdfastService is what Service.java is in Java: a service with a client of its own, which does what it
// is told.
type holdfastService struct {
	name    string
	servers []string
	ttl     time.Duration
	driver  driver.Driver
	client  *holdfast.Client
	leaders map[string]*holdfast.Client // by hf.leader
	held    map[string]held

	url    string                      // of Redis, or of a Redlock
	kinds  map[string]*holdfast.Client // by hf.redisson
	counts *redisson.Client
}

// held is a hold, or a candidacy, until it is ended.
type held interface{ Release() error }

// output keeps the lines of all services apart.
var output sync.Mutex

func say(format string, args ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", args...)
}

// serveServices is the program of Holdfast's services. See doc.go.
func serveServices() error {
	services := map[string]chan []string{}
	say("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		commands := services[words[0]]
		if commands == nil {
			commands = make(chan []string, 16)
			services[words[0]] = commands
			s := &holdfastService{
				name: words[0], leaders: map[string]*holdfast.Client{}, held: map[string]held{}, kinds: map[string]*holdfast.Client{},
			}
			go s.run(commands)
		}
		commands <- words[1:]
	}
	return nil
}

func (s *holdfastService) run(commands <-chan []string) {
	for words := range commands {
		answer, err := s.obey(context.Background(), words)
		if err != nil {
			answer = "error " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		say("%s = %s", s.name, answer)
	}
}

func (s *holdfastService) event(format string, args ...any) {
	say("%s ! %s", s.name, fmt.Sprintf(format, args...))
}

// obey carries out one command.
func (s *holdfastService) obey(ctx context.Context, words []string) (string, error) {
	switch words[0] {
	case "open":
		s.servers, s.ttl = strings.Split(words[1], ","), milliseconds(words[2])
		var err error
		if strings.HasPrefix(words[1], "red") {
			s.url = words[1]
			s.client, err = s.kind(ctx, "lock")
			return "ok", err
		}
		s.driver, s.client, err = s.open(ctx, "")
		return "ok", err
	case "close":
		return "ok", s.client.Close()
	case "waiters":
		return "ok", s.waiters(ctx, words[1], words[2], words[3])
	case "token":
		return fmt.Sprint(s.held[words[1]].(*holdfast.Lease).Token()), nil
	case "countdown":
		return s.countDown(ctx, words[1], words[2], words[3:])
	case "force":
		return s.force(ctx, words[1])
	case "lock":
		return s.lock(ctx, words[1], words[2], words[3], milliseconds(words[4]))
	case "end":
		return s.end(words[1])
	case "downgrade":
		return "ok", s.held[words[1]].(*holdfast.Lease).Downgrade(ctx)
	case "count":
		return "ok", s.count(ctx, words[1], words[2], words[3], words[4])
	case "burst":
		return s.burst(ctx, words[1], words[2], words[3])
	case "look":
		return "ok", s.look(ctx, words[1], words[2], words[3], words[4])
	case "crowd":
		return "ok", s.crowd(ctx, words[1], words[2], words[3], words[4])
	case "revoke":
		return "ok", zklock.Revoke(ctx, s.driver, nameOf(words[1]))
	case zklock.Latch, zklock.Selector:
		return "ok", s.campaign(ctx, words[0], words[1], words[2], words[3])
	case "leader":
		return s.leader(ctx, words[1], words[2])
	case "participants":
		info, err := s.client.Inspect(ctx, nameOf(words[1]))
		return strconv.Itoa(len(info.Holders) + len(info.Waiters)), err
	case "data":
		info, err := s.client.Inspect(ctx, nameOf(words[1]))
		if err != nil || len(info.Holders) == 0 {
			return "", errors.Join(err, errors.New("nobody holds it"))
		}
		return info.Holders[0].Note, nil
	}
	return "", errors.New("no such command")
}

// nameOf returns Holdfast's name of a path.
func nameOf(path string) string { return strings.TrimPrefix(path, "/") }

// open opens a client, which says when others ask for its locks.
func (s *holdfastService) open(ctx context.Context, leader string) (driver.Driver, *holdfast.Client, error) {
	d, err := zklock.New(ctx, zklock.Config{
		Servers: s.servers, Leader: leader,
		OnRevoke: func(name string, _ driver.Token) { s.event("revoked /%s", name) },
	})
	if err != nil {
		return nil, nil, err
	}
	c, err := holdfast.New(d, &holdfast.ClientOptions{TTL: s.ttl})
	return d, c, err
}

// kind opens a client of Redis whose mutexes are of a kind.
func (s *holdfastService) kind(ctx context.Context, kind string) (*holdfast.Client, error) {
	if c := s.kinds[kind]; c != nil {
		return c, nil
	}
	store := s.url
	switch {
	case strings.Contains(store, "hf.layout"):
	case strings.HasPrefix(store, "redlock"):
		store += "?hf.layout=redisson&hf.durable=yes" // these servers keep what they have: their votes count at once
	default:
		store += "?hf.layout=redisson&hf.redisson=" + kind
	}
	c, err := holdfast.Open(ctx, fmt.Sprintf("%s&hf.ttl=%v", store, s.ttl))
	if err != nil {
		return nil, err
	}
	s.kinds[kind] = c
	return c, nil
}

// counted opens what has semaphores and latches that nobody holds.
func (s *holdfastService) counted() (*redisson.Client, error) {
	if s.counts != nil {
		return s.counts, nil
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return nil, err
	}
	conn, err := redislock.Dial(context.Background(), u)
	if err != nil {
		return nil, err
	}
	s.counts, err = redisson.New(context.Background(), conn)
	return s.counts, err
}

// permits are those of a semaphore that nobody holds.
type permits struct {
	of *redisson.Semaphore
	n  int
}

func (p permits) Release() error { return p.of.Release(context.Background(), p.n) }

// countedTaker returns how such permits are taken.
func (s *holdfastService) countedTaker(name, numbers string) (taker, error) {
	var slots, n int
	if _, err := fmt.Sscanf(numbers, "%d:%d", &slots, &n); err != nil {
		return nil, err
	}
	client, err := s.counted()
	if err != nil {
		return nil, err
	}
	semaphore, err := client.Semaphore(name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, try bool) (held, error) {
		if _, err := semaphore.Create(ctx, slots, 0); err != nil {
			return nil, err
		}
		if !try {
			return permits{semaphore, n}, semaphore.Acquire(ctx, n)
		}
		ok, err := semaphore.TryAcquire(ctx, n)
		if err == nil && !ok {
			err = holdfast.ErrHeld
		}
		return permits{semaphore, n}, err
	}, nil
}

// countDown does something with a latch.
func (s *holdfastService) countDown(ctx context.Context, what, name string, args []string) (string, error) {
	client, err := s.counted()
	if err != nil {
		return "", err
	}
	latch, err := client.Latch(name)
	if err != nil {
		return "", err
	}
	switch what {
	case "create":
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return "", err
		}
		ok, err := latch.Create(ctx, n)
		return choose(ok, "ok", "busy"), err
	case "down":
		_, err := latch.CountDown(ctx)
		return "ok", err
	case "delete":
		ok, err := latch.Delete(ctx)
		return choose(ok, "ok", "busy"), err
	case "await":
		ctx, cancel := context.WithTimeout(ctx, milliseconds(args[0]))
		defer cancel()
		err := latch.Await(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			return "busy", nil
		}
		return "ok", err
	}
	n, err := latch.Count(ctx)
	return strconv.Itoa(n), err
}

// waiters has so many goroutines wait for a lock, and end it.
func (s *holdfastService) waiters(ctx context.Context, kind, name, number string) error {
	n, err1 := strconv.Atoi(number)
	take, err2 := s.taker(ctx, kind, name)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	failures := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			lock, err := take(ctx, false)
			if err == nil {
				err = lock.Release()
			}
			failures[i] = err
			s.event("done")
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

// force breaks whatever hold there is.
func (s *holdfastService) force(ctx context.Context, name string) (string, error) {
	info, err := s.client.Inspect(ctx, name)
	if err != nil || len(info.Holders) == 0 {
		return "free", err
	}
	for _, h := range info.Holders {
		if err := s.client.Break(ctx, name, h.Token); err != nil {
			return "", err
		}
	}
	return "ok", nil
}

// taker is what Lock and MultiLock have in common.
type taker func(ctx context.Context, try bool) (held, error)

func takerOf(l *holdfast.Lock) taker {
	return func(ctx context.Context, try bool) (held, error) {
		if try {
			return l.TryAcquire(ctx)
		}
		return l.Acquire(ctx)
	}
}

// taker returns how a lock is taken.
func (s *holdfastService) taker(ctx context.Context, kind, name string) (taker, error) {
	name = nameOf(name)
	kind, numbers, _ := strings.Cut(kind, ":")
	switch kind {
	case "mutex", "revocable", "red":
		return takerOf(s.client.Mutex(name, nil)), nil
	case "fair", "fenced", "spin":
		c, err := s.kind(ctx, kind)
		if err != nil {
			return nil, err
		}
		return takerOf(c.Mutex(name, nil)), nil
	case "counted":
		return s.countedTaker(name, numbers)
	case "single":
		return takerOf(s.client.Semaphore(name, 1, nil)), nil
	case "read":
		return takerOf(s.client.RWMutex(name, nil).Read), nil
	case "write":
		return takerOf(s.client.RWMutex(name, nil).Write), nil
	case "semaphore":
		var slots, permits int
		_, err := fmt.Sscanf(numbers, "%d:%d", &slots, &permits)
		return takerOf(s.client.Semaphore(name, slots, &holdfast.Options{Permits: permits})), err
	case "multi":
		var locks []*holdfast.Lock
		for name := range strings.SplitSeq(name, ",") {
			locks = append(locks, s.client.Mutex(nameOf(name), nil))
		}
		all := holdfast.All(locks...)
		return func(ctx context.Context, try bool) (held, error) {
			if try {
				return all.TryAcquire(ctx)
			}
			return all.Acquire(ctx)
		}, nil
	}
	return nil, errors.New("no such kind")
}

// take waits for a lock.
func (s *holdfastService) take(ctx context.Context, kind, name string) (held, error) {
	taker, err := s.taker(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	return taker(ctx, false)
}

// lock takes a lock, and waits for so long: 0 tries, less than 0 waits as long as it takes.
func (s *holdfastService) lock(ctx context.Context, handle, kind, name string, wait time.Duration) (string, error) {
	taker, err := s.taker(ctx, kind, name)
	if err != nil {
		return "", err
	}
	if wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
	}
	hold, err := taker(ctx, wait == 0)
	if errors.Is(err, holdfast.ErrHeld) || errors.Is(err, context.DeadlineExceeded) {
		return "busy", nil
	}
	if err != nil {
		return "", err
	}
	s.keep(handle, hold)
	return "held", nil
}

// keep keeps a hold, and says when it is lost.
func (s *holdfastService) keep(handle string, hold held) {
	s.held[handle] = hold
	if lease, ok := hold.(*holdfast.Lease); ok {
		go func() {
			<-lease.Done()
			if err := lease.Err(); !errors.Is(err, holdfast.ErrReleased) {
				s.event("lost %s", handle)
			}
		}()
	}
}

func (s *holdfastService) end(handle string) (string, error) {
	ok, err := kept(s.held[handle].Release(), holdfast.ErrLost)
	delete(s.held, handle)
	return choose(ok, "ok", "lost"), err
}

func number(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// setNumber writes over the old number, which is no longer than the new one. Truncated first, as by
// os.WriteFile, the file would be written to the disk each time (by ext4), which takes longer than a
// hand-over.
func setNumber(file string, n int) error { return overwrite(file, strconv.Itoa(n)) }

func overwrite(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// unchanged checks that a file still has a number.
func unchanged(file string, want int) error {
	if got, err := number(file); err != nil || got != want {
		return fmt.Errorf("the number was %d and is %d, %w, under the same lock", want, got, err)
	}
	return nil
}

// count increments the number in a file under a lock. A writer also looks at it again after its
// downgrade.
func (s *holdfastService) count(ctx context.Context, kind, name, file, times string) error {
	return s.repeat(ctx, kind, name, times, func(hold held) error {
		n, err := number(file)
		if err != nil {
			return err
		}
		if err := setNumber(file, n+1); err != nil || kind != "write" {
			return err
		}
		if err := hold.(*holdfast.Lease).Downgrade(ctx); err != nil {
			return err
		}
		runtime.Gosched()
		return unchanged(file, n+1)
	})
}

// burst takes and releases a lock, and returns how many nanoseconds it took.
func (s *holdfastService) burst(ctx context.Context, kind, name, times string) (string, error) {
	begin := time.Now()
	err := s.repeat(ctx, kind, name, times, func(held) error { return nil })
	return strconv.FormatInt(time.Since(begin).Nanoseconds(), 10), err
}

// look reads the number twice in each hold of a lock that others may share.
func (s *holdfastService) look(ctx context.Context, kind, name, file, times string) error {
	return s.repeat(ctx, kind, name, times, func(held) error {
		n, err := number(file)
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
		return unchanged(file, n)
	})
}

// crowd has a file in a directory for each permit that it holds, and checks that there are never too
// many.
func (s *holdfastService) crowd(ctx context.Context, kind, name, dir, times string) error {
	var slots, permits int
	_, numbers, _ := strings.Cut(kind, ":")
	if _, err := fmt.Sscanf(numbers, "%d:%d", &slots, &permits); err != nil {
		return err
	}
	return s.repeat(ctx, kind, name, times, func(held) error {
		for i := range permits {
			mine := filepath.Join(dir, fmt.Sprint("permit-", os.Getpid(), s.name, i))
			if err := os.WriteFile(mine, nil, 0o600); err != nil {
				return err
			}
			defer os.Remove(mine)
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) > slots {
			return fmt.Errorf("%d permits of %d, %w", len(all), slots, err)
		}
		return nil
	})
}

// repeat does something under a lock, so many times, and says now and then how often it did, as a sign
// that it goes on.
func (s *holdfastService) repeat(ctx context.Context, kind, name, times string, do func(held) error) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	for i := range n {
		hold, err := s.take(ctx, kind, name)
		if err != nil {
			return err
		}
		if err := errors.Join(do(hold), hold.Release()); err != nil {
			return err
		}
		if (i+1)%100 == 0 {
			s.event("at %d", i+1)
		}
	}
	return nil
}

// election returns an election, among Curator's candidates of that kind.
func (s *holdfastService) election(ctx context.Context, kind, name string) (*election.Election, error) {
	if s.leaders[kind] == nil {
		_, c, err := s.open(ctx, kind)
		if err != nil {
			return nil, err
		}
		s.leaders[kind] = c
	}
	return election.New(s.leaders[kind], nameOf(name), nil), nil
}

// candidacy is one until it is released: it leads until then, once it is elected.
type candidacy struct {
	cancel context.CancelFunc
	done   chan error
}

func (c *candidacy) Release() error {
	c.cancel()
	if err := <-c.done; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// campaign campaigns in the background.
func (s *holdfastService) campaign(ctx context.Context, kind, handle, name, id string) error {
	e, err := s.election(ctx, kind, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &candidacy{cancel: cancel, done: make(chan error, 1)}
	s.held[handle] = c
	go func() {
		c.done <- e.Do(ctx, id, func(ctx context.Context, _ *election.Leadership) error {
			s.event("leader %s", handle)
			<-ctx.Done()
			s.event("deposed %s", handle)
			return nil
		})
	}()
	return nil
}

// leader returns the ids of the leader and of all candidates in their order.
func (s *holdfastService) leader(ctx context.Context, kind, name string) (string, error) {
	e, err := s.election(ctx, kind, name)
	if err != nil {
		return "", err
	}
	leader, err := e.Leader(ctx)
	if err != nil {
		return "", err
	}
	info, err := s.leaders[kind].Inspect(ctx, nameOf(name))
	ids := []string{leader.Value}
	for _, w := range info.Waiters {
		ids = append(ids, w.Note)
	}
	return leader.Value + " of " + strings.Join(ids, ","), err
}

func milliseconds(text string) time.Duration {
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Millisecond
}

func choose(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}

// kept reports whether a call has succeeded, and no error if it says that the lock was lost.
func kept(err, lost error) (bool, error) {
	if errors.Is(err, lost) {
		return false, nil
	}
	return err == nil, err
}
