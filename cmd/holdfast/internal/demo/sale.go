package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// impatient: every fourth user clicks twice, and the two requests go to
// different services.
const impatient = 4

// outcome is what one run of a strategy came to, as its database shows it.
type outcome struct {
	counts
	took time.Duration // from the first request to the last answer
	note string        // what was other than meant
}

// oversold is how many orders there are without an item.
func (o outcome) oversold(stock int) int { return max(0, o.sold-stock) }

// run is one run of a strategy: a new database, new processes.
type run struct {
	*demonstration
	strategy strategy
	fleet    *fleet
	open     map[int]int // requests not yet answered, and their users
	sent     int
	note     string
	silence  *time.Timer // ends the run; nil in tests that do not
}

// sale runs a strategy once, and counts.
func (d *demonstration) sale(ctx context.Context, s strategy) (result outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(answerWithin, func() { cancel(fmt.Errorf("demo: %s: no answer for %v", s.name, answerWithin)) })
	defer silence.Stop()
	d.runs++
	shop, remove, err := d.openPlace(ctx, d.Stock)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	c := config{Job: "sale", Database: shop.place, Name: d.name(s.name), Strategy: s.name, Stock: d.Stock}
	if s.locks {
		c.Store = d.Store
	}
	configs := make([]config, d.Services)
	for i := range configs {
		configs[i] = c
	}
	r := &run{demonstration: d, strategy: s, open: map[int]int{}, silence: silence}
	if r.fleet, err = launch(ctx, configs); err != nil {
		return result, err
	}
	if result.took, err = r.all(ctx); err != nil {
		r.fleet.kill()
		return result, err
	}
	if err := r.fleet.leave(ctx); err != nil {
		return result, err
	}
	result.note = r.note
	result.counts, err = shop.counts(ctx)
	return result, err
}

// answerWithin is how long nobody may be answered. A whole run takes a second or two, or as
// long as it does where the database or the machine is slow.
const answerWithin = 30 * time.Second

// all sends the requests of all users, and returns how long it took to answer
// them.
func (r *run) all(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	first := 0
	if r.strategy.pause {
		if err := r.stopFirst(ctx); err != nil {
			return 0, err
		}
		first = 1 // user 0 has asked already
	}
	for user := first; user < r.Users; user++ {
		if err := r.ask(request{User: user}); err != nil {
			return 0, err
		}
		if user%impatient == 0 {
			if err := r.ask(request{User: user}); err != nil {
				return 0, err
			}
		}
	}
	if r.strategy.pause {
		if err := r.resumeFirst(ctx); err != nil {
			return 0, err
		}
	}
	for len(r.open) > 0 {
		if _, err := r.next(ctx); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// ask sends a request to the next service in turn.
func (r *run) ask(q request) error {
	to := r.sent % len(r.fleet.members)
	r.sent++
	q.ID = r.sent
	r.open[q.ID] = q.User
	return r.fleet.send(to, q)
}

// next takes the next reply. Who is told to try again does.
func (r *run) next(ctx context.Context) (message, error) {
	m, err := r.fleet.next(ctx)
	if err != nil {
		return m, err
	}
	if r.silence != nil {
		r.silence.Reset(answerWithin)
	}
	if m.Answer == "" {
		return m, nil
	}
	user, ok := r.open[m.ID]
	if !ok {
		return m, fmt.Errorf("demo: process %d has answered request %d, which is not open", m.from+1, m.ID)
	}
	delete(r.open, m.ID)
	if m.Answer == retry {
		err = r.ask(request{User: user})
	}
	return m, err
}

// stopFirst sends the first request, to the first service, and stops that
// service when the request has come to the payment, after the read.
func (r *run) stopFirst(ctx context.Context) error {
	if err := r.ask(request{User: 0, Pause: true}); err != nil {
		return err
	}
	for {
		m, err := r.next(ctx)
		if err != nil {
			return err
		}
		if m.AtPause {
			return pause(r.fleet.members[0].cmd.Process)
		}
	}
}

// resumeFirst lets the stopped service go on once another has sold: the lock,
// which nobody renewed, has gone over to it. Where it does not, because the
// process was stopped at a point where it holds up the whole store, the service
// goes on all the same, and the result says so.
func (r *run) resumeFirst(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, 2*shortTTL(r.caps)+answerWithin/2)
	defer cancel()
	for {
		m, err := r.next(limited)
		if err != nil && ctx.Err() == nil && limited.Err() != nil {
			r.note = "the lock did not pass to another while its holder was stopped"
			break
		}
		if err != nil {
			return err
		}
		if m.from != 0 && m.Answer == sold {
			break
		}
	}
	if err := r.fleet.send(0, request{GoOn: true}); err != nil {
		return err
	}
	return resume(r.fleet.members[0].cmd.Process)
}
