package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/holdfastlock/holdfast"
)

// childEnv marks a process as one that the demo has started.
const childEnv = "HOLDFAST_DEMO_CHILD"

// IsChild reports whether this process is one that the demo has started. Then
// main must call Child and do nothing else.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Child does the work of a process that the demo has started, and returns its
// exit code.
func Child() int {
	signal.Ignore(os.Interrupt) // it is told to leave by the end of its input
	if err := work(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// service is what a process of the demo has.
type service struct {
	config config
	shop   *shop
	locks  *holdfast.Client // nil: the strategy needs none
	mu     sync.Mutex       // that of the strategy process-mutex
	goOn   chan struct{}    // a request to be paused may go on

	out     sync.Mutex
	replies *json.Encoder
}

// work is the life of a process, from its first line of input to the end of it.
func work(in io.Reader, out io.Writer) (err error) {
	requests := json.NewDecoder(in)
	s := &service{goOn: make(chan struct{}, 1), replies: json.NewEncoder(out)}
	if err := requests.Decode(&s.config); err != nil {
		return fmt.Errorf("demo: reading the configuration: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := s.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if s.config.Job == "cron" {
		return s.cron(ctx, cancel, requests)
	}
	return s.serve(ctx, cancel, requests)
}

// open opens the database, and the store if there is one, and says so.
func (s *service) open(ctx context.Context) (err error) {
	if s.shop, err = openShop(s.config.Database); err != nil {
		return err
	}
	ready := reply{Ready: true}
	if s.config.Store != "" {
		if s.locks, err = openStore(ctx, s.config.Store); err != nil {
			return errors.Join(err, s.shop.Close())
		}
		ready.Store = s.locks.Caps().Store
	}
	s.say(ready)
	return nil
}

func (s *service) close() error {
	var err error
	if s.locks != nil {
		err = s.locks.Close()
	}
	return errors.Join(err, s.shop.Close())
}

// say sends a reply. If nobody reads it the input has ended too, which is
// noticed there.
func (s *service) say(r reply) {
	s.out.Lock()
	defer s.out.Unlock()
	_ = s.replies.Encode(r)
}

// serve answers requests, all at once, until there are no more.
func (s *service) serve(ctx context.Context, cancel context.CancelFunc, requests *json.Decoder) error {
	how, ok := find(s.config.Strategy)
	if !ok {
		return badOptions("there is no strategy %q", s.config.Strategy)
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for {
		var r request
		switch err := requests.Decode(&r); {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("demo: reading a request: %w", err)
		case r.GoOn:
			s.goOn <- struct{}{}
			continue
		}
		group.Go(func() {
			a, err := how.sell(s, ctx, r)
			switch {
			case err == nil:
				s.say(reply{ID: r.ID, Answer: a})
			case ctx.Err() == nil:
				s.say(reply{ID: r.ID, Error: err.Error()})
			}
		})
	}
}
