package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast"
)

// crashHold is the task of a process that holds one name until it is killed.
const crashHold = "crash"

// queueIn is how long waiters have to take their places before the holders are killed.
const queueIn = 500 * time.Millisecond

// crashName is the name that one of the processes holds.
func crashName(ttl time.Duration, process int) string {
	return fmt.Sprintf("bench/crash/%v/%d", ttl, process)
}

// holdForEver holds a name, says so by an empty line, and never returns.
func holdForEver(ctx context.Context, l Locker, t task) (result, error) {
	lease, err := l.(ours).client.Mutex(crashName(t.TTL, t.Process), &holdfast.Options{TTL: t.TTL}).Acquire(ctx)
	if err != nil {
		return result{}, err
	}
	fmt.Println()
	<-lease.Done() // under load it may be lost; whoever waits for the name then gets it too soon, and sees so
	return result{}, lease.Err()
}

// crashed is what became of the names of holders that were killed.
type crashed struct {
	requests float64         // that a holder sent each second, while nobody waited; 0: nobody counts them
	freed    []time.Duration // from each kill -9 until somebody else had the name
	foreign  float64         // how much of the machine others used: 0 to 1
}

// crash starts so many processes that hold a name each, spread over the time between two renewals.
// It counts the server's requests for a window, lets a client wait for each name, and kills all
// holders.
func crash(ctx context.Context, s *store, addr string, ttl, window time.Duration, holders int) (crashed, error) {
	ctx, cancel := context.WithTimeout(ctx, window+3*ttl+openWithin)
	defer cancel()
	before := loadNow()
	processes, err := startHolders(ctx, task{Store: s.name, Peer: s.ours, Addr: addr, Workload: crashHold, TTL: ttl, Processes: holders})
	defer func() {
		for _, p := range processes {
			p.Process.Kill()
			p.Wait()
		}
	}()
	if err != nil {
		return crashed{}, err
	}
	commands, scripts, err := rate(func() (served, error) { return s.work(ctx, addr) }, window)
	if err != nil {
		return crashed{}, err
	}
	if scripts > 0 { // a call of a script is one request; the commands inside it are counted too
		commands = scripts
	}
	p, err := s.peer(s.ours)
	if err != nil {
		return crashed{}, err
	}
	got := crashed{requests: max(0, commands) / float64(holders), freed: make([]time.Duration, holders)}
	killed, had, errs := make([]time.Time, holders), make([]time.Time, holders), make([]error, holders)
	var wg sync.WaitGroup
	for i := range holders {
		waiter, err := p.open(ctx, addr)
		if err != nil {
			return crashed{}, err
		}
		defer waiter.Close()
		wg.Go(func() {
			lease, err := waiter.(ours).client.Mutex(crashName(ttl, i), &holdfast.Options{TTL: ttl}).Acquire(ctx)
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
		if err := p.Process.Kill(); err != nil {
			errs[i] = err
		}
	}
	wg.Wait()
	for i := range holders {
		got.freed[i] = had[i].Sub(killed[i])
		if got.freed[i] <= 0 && errs[i] == nil {
			errs[i] = errors.New("a name was free before its holder was killed")
		}
	}
	got.foreign = foreign(before, loadNow())
	return got, errors.Join(errs...)
}

// startHolders starts the processes of a task one by one, so that their renewals are spread over
// the time between two, and waits until all hold. It returns those that it has started, even if one
// of them fails.
func startHolders(ctx context.Context, t task) ([]*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var processes []*exec.Cmd
	start := time.Now()
	for i := range t.Processes {
		t.Process = i
		text, err := json.Marshal(t)
		if err != nil {
			return processes, err
		}
		p := exec.CommandContext(ctx, program)
		p.Env = append(os.Environ(), taskVariable+"="+string(text))
		var complaints bytes.Buffer
		p.Stderr = &complaints
		out, err := p.StdoutPipe()
		if err != nil {
			return processes, err
		}
		if err := p.Start(); err != nil {
			return processes, err
		}
		processes = append(processes, p)
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			p.Process.Kill()
			p.Wait() // the complaints are complete then
			return processes[:i], fmt.Errorf("%w: %s", err, complaints.Bytes())
		}
		time.Sleep(time.Until(start.Add(t.TTL / 3 * time.Duration(i+1) / time.Duration(t.Processes))))
	}
	return processes, nil
}
