package demo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// impatient: every fourth user clicks twice, and the two requests go to different services.
const impatient = 4

// answerWithin is how long no user may get an answer. A whole run takes a second or two, or as
// long as it does where the database or the machine is slow.
const answerWithin = 30 * time.Second

// outcome is what one run of a strategy came to, as its database shows it.
type outcome struct {
	counts
	took time.Duration // from the first request to the last answer
	note string        // what was other than meant
}

// oversold is how many orders there are without an item.
func (o outcome) oversold(stock int) int { return max(0, o.sold-stock) }

// sale runs a strategy once, with a new database and new processes, and counts.
func (d *demonstration) sale(ctx context.Context, s strategy) (result outcome, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(answerWithin, func() {
		cancel(fmt.Errorf("demo: %s: no answer for %v", s.name, answerWithin))
	})
	defer silence.Stop()
	d.runs++
	shop, remove, err := d.openDatabase(ctx, d.Stock)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	f, err := launch(ctx, d.services(shop, s))
	if err != nil {
		return result, err
	}

	start := time.Now()
	working := f.members
	var passed <-chan time.Time // by then the lock should have passed to another service
	if s.pause {
		if err := f.pauseFirst(); err != nil {
			return result, err
		}
		working = working[1:]
		passed = time.After(2*shortTTL(d.caps) + answerWithin/2)
	}
	for _, m := range working {
		m.order(start)
	}
	for paused := s.pause; ; {
		select {
		case l, ok := <-f.lines:
			if !ok && f.err != nil {
				return result, f.err
			}
			if !ok {
				result.counts, err = shop.counts(ctx)
				return result, err
			}
			silence.Reset(answerWithin)
			result.took = time.Since(start)
			if !paused || l.from == 0 || l.text != string(sold) {
				continue
			}
		case <-passed:
			// The service was stopped at a point where it holds up the whole store.
			result.note = "the lock did not pass to another while its holder was stopped"
		}
		paused, passed = false, nil
		if err := f.resumeFirst(); err != nil {
			return result, err
		}
	}
}

// services returns what the services of a run have to do. The requests of the users, and the
// second ones of those who click twice, go to one service after the other.
func (d *demonstration) services(shop *shop, s strategy) []config {
	configs := make([]config, d.Services)
	for i := range configs {
		c := config{Database: shop.url, Name: d.name(s.name), Strategy: s.name, Stock: d.Stock}
		if s.locks {
			c.Store = d.Store
		}
		c.Pause = s.pause && i == 0
		configs[i] = c
	}
	requests := 0
	for user := range d.Users {
		clicks := 1
		if user%impatient == 0 {
			clicks = 2
		}
		for range clicks {
			to := &configs[requests%d.Services]
			to.Users = append(to.Users, user)
			requests++
		}
	}
	return configs
}

// pauseFirst has the first service begin, alone, and stops it when its first request has come to
// the payment, after the read.
func (f *fleet) pauseFirst() error {
	f.members[0].order(time.Now())
	for {
		l, err := f.next()
		if err != nil {
			return err
		}
		if l.text != atPayment {
			continue
		}
		if err := pause(f.members[0].Process); err != nil {
			return f.kill(err)
		}
		return nil
	}
}

// resumeFirst lets the stopped service go on. It is called once another service has sold: the
// lock, which nobody renewed, has passed to it.
func (f *fleet) resumeFirst() error {
	f.members[0].order(time.Now())
	if err := resume(f.members[0].Process); err != nil {
		return f.kill(err)
	}
	return nil
}
