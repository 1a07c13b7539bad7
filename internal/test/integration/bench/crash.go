package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// queueIn is how long waiters have to take their places before the holders are killed.
const queueIn = 500 * time.Millisecond

// crashMutex is the lock that one of the processes holds.
func crashMutex(ctx context.Context, s *store, addr string, ttl time.Duration, process int) (*holdfast.Lock, *holdfast.Client, error) {
	client, err := holdfast.Open(ctx, s.url(addr))
	if err != nil {
		return nil, nil, err
	}
	return client.Mutex(fmt.Sprintf("bench/crash/%v/%d", ttl, process), &holdfast.Options{TTL: ttl}), client, nil
}

// holdForEver holds a name, says so by an empty line, and never returns.
func holdForEver(ctx context.Context, s *store, t task) error {
	lock, _, err := crashMutex(ctx, s, t.Addr, t.TTL, t.Process)
	if err != nil {
		return err
	}
	lease, err := lock.Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Println()
	<-lease.Done() // under load it may be lost; whoever waits for the name then gets it too soon, and sees so
	return lease.Err()
}

// crashed is what became of the names of holders that were killed.
type crashed struct {
	requests float64         // that a holder sent each second, while nobody waited; 0: nobody counts them
	freed    []time.Duration // from each kill -9 until somebody else had the name
}

// crash starts so many processes that hold a name each, spread over the time between two renewals.
// It counts the server's requests for a window, lets a client wait for each name, and kills all
// holders.
func crash(tb testing.TB, s *store, addr string, ttl, window time.Duration, holders int) (got crashed, err error) {
	ctx, cancel := context.WithTimeout(tb.Context(), window+3*ttl+openWithin)
	defer cancel()
	processes, err := startHolders(ctx, tb, task{Store: s.name, Addr: addr, Peer: oursName, TTL: ttl}, holders)
	if err != nil {
		return got, err
	}
	served, err := (&measurement{workload: workload{window: window}, store: s, addr: addr}).rate()
	if err != nil {
		return got, err
	}
	got.requests = served.Commands / float64(holders)
	if served.Calls > 0 { // a call of a script is one request; the commands inside it are counted too
		got.requests = served.Calls / float64(holders)
	}
	killed, had, errs := make([]time.Time, holders), make([]time.Time, holders), make([]error, holders)
	var waiting sync.WaitGroup
	for i := range holders {
		lock, client, err := crashMutex(ctx, s, addr, ttl, i)
		if err != nil {
			return got, err
		}
		defer client.Close()
		waiting.Go(func() {
			lease, err := lock.Acquire(ctx)
			had[i] = time.Now()
			if err == nil {
				err = lease.Release()
			}
			errs[i] = err
		})
	}
	time.Sleep(queueIn)
	for i, p := range processes {
		killed[i] = time.Now()
		p.Kill()
	}
	waiting.Wait()
	for i := range holders {
		freed := had[i].Sub(killed[i])
		if got.freed = append(got.freed, freed); freed <= 0 && errs[i] == nil {
			errs[i] = errors.New("a name was free before its holder was killed")
		}
	}
	return got, errors.Join(errs...)
}

// startHolders starts n holders one by one, so that their renewals are spread over the time between two, and waits
// until all hold. They end with the context.
func startHolders(ctx context.Context, tb testing.TB, t task, n int) (processes []*testserver.Child, err error) {
	start := time.Now()
	for t.Process = range n {
		p := t.start(ctx, tb)
		if line, err := p.Line(); err != nil || line != "" {
			return nil, fmt.Errorf("a holder said %q: %v", line, err)
		}
		processes = append(processes, p)
		time.Sleep(time.Until(start.Add(t.TTL / 3 * time.Duration(t.Process+1) / time.Duration(n))))
	}
	return processes, nil
}
