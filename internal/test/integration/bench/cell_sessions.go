package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/cell"
)

// idleSessions is the task of clients that hold a lock each, and do nothing else.
const idleSessions = "sessions"

// keepSessions lets each client take a name of its own, with a session of its own, and keep it until
// the measurement is over.
func keepSessions(ctx context.Context, clients []Locker, t task) (result, error) {
	a, err := openArena(t.Arena)
	if err != nil {
		return result{}, err
	}
	lost := make([]func() bool, len(clients))
	for i, l := range clients {
		h, ok := l.(holder)
		if !ok {
			return result{}, errors.New("does not renew by itself")
		}
		if lost[i], err = h.Hold(ctx, fmt.Sprintf("bench/%d/%d", t.Process, i)); err != nil {
			return result{}, err
		}
	}
	a.ready.Add(1)
	for a.stage.Load() != over {
		time.Sleep(10 * time.Millisecond)
	}
	var r result
	for _, gone := range lost {
		if gone() {
			r.Lost++
		}
	}
	return r, nil
}

// prober is a client with a session of its own, whose calls of KeepAlive are answered at once.
type prober struct {
	client  *cell.Client
	session *cell.Session
	took    []time.Duration
	failed  int
}

func newProber(ctx context.Context, addr string, config *tls.Config) (*prober, error) {
	client, err := cell.New(cell.Config{Members: []string{addr}, TLS: config.Clone})
	if err != nil {
		return nil, err
	}
	session, err := client.Open(ctx, cell.SessionOptions{TTL: ttl})
	if err != nil {
		client.Close()
		return nil, err
	}
	return &prober{client: client, session: session}, nil
}

func (p *prober) close() {
	p.session.Abandon()
	p.client.Close()
}

// probe calls KeepAlive once in each interval of a window. A call that was not answered counts with the
// time until it was given up.
func (p *prober) probe(ctx context.Context, window, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for end := time.Now().Add(window); time.Now().Before(end); <-tick.C {
		start := time.Now()
		if err := p.session.Extend(ctx); err != nil {
			p.failed++
		}
		p.took = append(p.took, time.Since(start))
	}
}

// probeAll lets all of them probe at the same time, and returns how long their calls took.
func probeAll(ctx context.Context, all []*prober, window, every time.Duration) (took []time.Duration, failed int) {
	var probing sync.WaitGroup
	for i, p := range all {
		probing.Go(func() {
			time.Sleep(every * time.Duration(i) / time.Duration(len(all))) // they are spread evenly
			p.probe(ctx, window, every)
		})
	}
	probing.Wait()
	for _, p := range all {
		took, failed = append(took, p.took...), failed+p.failed
	}
	return took, failed
}

// residentOf returns how much memory a process has, from Linux's /proc.
func residentOf(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(text, []byte("VmRSS:"))
	line, _, _ := strings.Cut(string(rest), "kB")
	kilobytes, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return kilobytes << 10, err
}
