package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast"
)

// childEnv marks a process as one that the demo has started.
const childEnv = "HOLDFAST_DEMO_CHILD"

// IsChild reports whether this process is one that the demo has started. Then main must call
// Child and do nothing else.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Child does the work of a process that the demo has started, and returns its exit code.
//
// The process reads JSON values from its standard input: first its configuration, then, when all
// processes are ready, the time at which to begin, and, if it is the one to be paused, anything
// at all as the order to go on. It writes one line for each thing that it reports: that it is
// ready, each answer to a user, each tick. It ends when its work is done.
func Child() int {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the demo, which kills its processes
	if err := work(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// config is what a process has to do. It goes through a pipe, not through arguments or the
// environment, which others can see: the URLs may hold a password.
type config struct {
	Database string    // its URL
	Store    string    // the store's URL; "": the strategy needs no locks
	Name     string    // of the lock
	Cron     *schedule // nil: the process is a service of the flash sale

	// For the flash sale:

	Strategy string // how to sell
	Stock    int    // how many items there were at first
	Users    []int  // those whose requests this service gets
	Pause    bool   // the first of them is paused at the payment
}

// service is what a process of the demo works with.
type service struct {
	config
	in    *json.Decoder
	shop  *shop
	locks *holdfast.Client // nil if Store is ""
	mu    sync.Mutex       // that of the strategy process-mutex
}

// What a process reports besides answers and ticks.
const (
	ready     = "ready"      // it has opened everything; the store's identity follows
	atPayment = "at payment" // the request that is to be paused has come to the payment
)

// report writes a line. If that fails the demo was killed, and this process ends too.
func report(what ...any) {
	if _, err := fmt.Println(what...); err != nil {
		os.Exit(1)
	}
}

// work opens the database and the store, waits for the beginning, and does the work.
func work(ctx context.Context) (err error) {
	s := &service{in: json.NewDecoder(os.Stdin)}
	if err := s.in.Decode(&s.config); err != nil {
		return fmt.Errorf("demo: reading the configuration: %w", err)
	}
	if s.shop, err = openShop(s.Database); err != nil {
		return err
	}
	store := "" // the demo checks that all processes have opened the same one
	if s.Store != "" {
		if s.locks, err = openStore(ctx, s.Store); err != nil {
			return err
		}
		store = s.locks.Caps().Store
	}
	report(ready, store)
	var start time.Time
	if err := s.in.Decode(&start); err != nil {
		return fmt.Errorf("demo: waiting for the beginning: %w", err)
	}
	if s.Cron != nil {
		err = s.runTicks(ctx, start)
	} else {
		err = s.serve(ctx)
	}
	if s.locks != nil {
		err = errors.Join(err, s.locks.Close())
	}
	return errors.Join(err, s.shop.Close())
}

// serve answers the requests of all users at the same time. If one of them is to be paused, the
// others wait until it has been answered.
func (s *service) serve(ctx context.Context) error {
	strategy, ok := find(s.Strategy)
	if !ok {
		return badOptions("there is no strategy %q", s.Strategy)
	}
	users := s.Users
	if s.Pause {
		if err := s.answer(ctx, strategy, request{user: users[0], pause: true}); err != nil {
			return err
		}
		users = users[1:]
	}
	failed := make(chan error, len(users))
	for _, user := range users {
		go func() { failed <- s.answer(ctx, strategy, request{user: user}) }()
	}
	for range users {
		if err := <-failed; err != nil {
			return err // the end of the process ends the other requests
		}
	}
	return nil
}

// answer sells to a user, again if the user is told to try again, and reports each answer.
func (s *service) answer(ctx context.Context, strategy strategy, r request) error {
	for {
		a, err := strategy.sell(s, ctx, r)
		if err != nil {
			return err
		}
		report(a)
		if a != retry {
			return nil
		}
		r.pause = false
	}
}
