package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// hold keeps many names held, and lets the peer renew them as it does by itself.
func hold(ctx context.Context, l Locker, names int, window time.Duration, work counter) (result, error) {
	h, ok := l.(holder)
	if !ok {
		return result{}, errors.New("does not renew by itself")
	}
	texts := make([]string, names)
	lost := make([]func() bool, names)
	for i := range texts {
		texts[i] = fmt.Sprintf("bench/%d", i)
	}
	before, _ := memories() // a hold has no goroutine: the stacks are those of takers that have ended
	const takers = 64
	errs := make([]error, takers)
	var wg sync.WaitGroup
	for w := range takers {
		wg.Go(func() {
			for i := w; i < names && errs[w] == nil; i += takers {
				lost[i], errs[w] = h.Hold(ctx, texts[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return result{}, err
	}
	after, _ := memories()
	each := (after - before) / float64(names)
	commands, scripts, err := rate(work, window)
	if err != nil {
		return result{}, err
	}
	r := result{Bytes: each, Commands: commands, Scripts: scripts}
	for _, gone := range lost {
		if gone() {
			r.Lost++
		}
	}
	return r, nil
}
