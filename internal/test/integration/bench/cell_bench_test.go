//go:build soak

package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// BenchmarkCellWaiters lets 1,000 clients, each with a session of its own, wait for one name; then each gets it once.
func BenchmarkCellWaiters(b *testing.B) {
	run(b, &cellStore, workload{
		name: "waiters", about: "1,000 clients, 50 in a process, wait for one name, then each gets it once", kind: wait,
		workers: ofProcess, clients: ofProcess, processes: 20, window: 4 * time.Second, columns: waitColumns,
	}, settingsNow(b, 1, 0))
}

// Of BenchmarkCellSessions.
const (
	usualSessions  = 10_000
	sessionsOfEach = 500 // processes
	sessionsSettle = 10 * time.Second
	sessionsWindow = 30 * time.Second
	probers        = 50
	probeEvery     = 250 * time.Millisecond
	probeWindow    = 20 * time.Second
)

// BenchmarkCellSessions measures 10,000 clients, each with a connection of its own over TLS, a session
// and a lock, at one member: its memory, its processor time while nobody does anything, and how long
// KeepAlive takes beside them. Sessions with a shorter TTL are kept alive more often: as much is done
// for 10,000 sessions of 3 s as for 100,000 of 30 s.
//
// HOLDFAST_BENCH_SESSIONS is how many sessions there are, if not as many. The member and the clients need a
// file for each.
func BenchmarkCellSessions(b *testing.B) {
	sessions := usualSessions
	if text := os.Getenv("HOLDFAST_BENCH_SESSIONS"); text != "" {
		var err error
		if sessions, err = strconv.Atoi(text); err != nil || sessions < sessionsOfEach || sessions > 2*usualSessions {
			b.Fatalf("HOLDFAST_BENCH_SESSIONS=%s: a number from %d to %d is right", text, sessionsOfEach, 2*usualSessions)
		}
	}
	fmt.Printf("\n%d sessions with a connection, a lock and TLS each\n\n"+
		"| TTL | calls as of so many sessions of 30 s | memory each | server's share of a core | KeepAlive p50 | p99 | calls that failed | lost |\n"+
		"|---|---|---|---|---|---|---|---|\n", sessions)
	for _, ttl := range []time.Duration{30, 10, 6, 4, 3, 2} {
		ttl *= time.Second
		b.Run(ttl.String(), func(b *testing.B) { benchmarkSessions(b, sessions/sessionsOfEach, ttl) })
	}
}

func benchmarkSessions(b *testing.B, processes int, of time.Duration) {
	cert, key := testserver.Certificate(b, b.TempDir(), "", 1)
	server := testserver.StartCell(b, testserver.CellOptions{Cert: cert, Key: key}).Members[0]
	defer server.Kill()
	t := task{
		Store: "cell", Peer: oursName, Kind: keep, Workers: sessionsOfEach, Clients: sessionsOfEach, Arena: filepath.Join(b.TempDir(), "arena"),
		Addr: server.Addr + ";" + filepath.Join(server.Data, "etcd.sock") + ";" + url.Values{"hf.ca": {cert}, "hf.ttl": {of.String()}}.Encode(),
	}
	a, err := openArena(t.Arena)
	if err != nil {
		b.Fatal(err)
	}
	beside := startProbers(b, server.Addr, cert)
	alone := resident(b, server.PID())
	answers := startProcesses(b.Context(), b, t, processes)
	defer a.stage.Store(over)
	if !within(openWithin, func() bool { return int(a.ready.Load()) == processes || len(answers) > 0 }) || len(answers) > 0 {
		b.Fatalf("%d of %d processes have their sessions: %v", a.ready.Load(), processes, (<-answers).err)
	}
	time.Sleep(sessionsSettle)
	before, start := ticks(b, server.PID()), time.Now()
	time.Sleep(sessionsWindow)
	share := float64(ticks(b, server.PID())-before) / ticksPerSecond / time.Since(start).Seconds()
	each := float64(resident(b, server.PID())-alone) / float64(processes*sessionsOfEach)
	took, failed := probe(b.Context(), beside)
	a.stage.Store(over)
	lost := 0
	for range processes {
		got := <-answers
		if got.err != nil {
			b.Error(got.err)
		}
		lost += got.Lost
	}
	fmt.Printf("| %v | %d | %.1f KiB | %.0f %% | %s | %s | %d of %d | %d |\n", of,
		int64(processes*sessionsOfEach)*int64(ttl/time.Second)/int64(of/time.Second), each/1024, 100*share,
		span(float64(quantile(took, 0.5))), span(float64(quantile(took, 0.99))), failed, len(took), lost)
	b.ReportMetric(each, "B/session")
	b.ReportMetric(100*share, "%core")
	b.ReportMetric(float64(quantile(took, 0.99))/1e6, "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// ticksPerSecond is how many ticks of the kernel's accounts make a second of processor time.
const ticksPerSecond = 100

// ticks returns the processor time of a process, from Linux's /proc.
func ticks(b *testing.B, pid int) (sum int64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The program's name is in parentheses and may contain anything.
	for _, field := range strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[11:13] { // user, system
		n, _ := strconv.ParseInt(field, 10, 64)
		sum += n
	}
	return sum
}

// resident returns how much memory a process has, from Linux's /proc.
func resident(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("VmRSS:"))
	line, _, _ := strings.Cut(string(rest), "kB")
	kilobytes, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kilobytes << 10
}

// startProbers opens clients with a session each that will call KeepAlive beside what goes on.
func startProbers(b *testing.B, addr, cert string) (all []*cell.Session) {
	b.Helper()
	text, err := os.ReadFile(cert)
	if err != nil {
		b.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(text)
	for range probers {
		client, err := cell.New(cell.Config{Members: []string{addr}, TLS: config.Clone})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { client.Close() })
		session, err := client.Open(b.Context(), cell.SessionOptions{TTL: ttl})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(session.Abandon)
		all = append(all, session)
	}
	return all
}

// probe lets each client call KeepAlive once in each interval, spread evenly, and returns how long the calls
// took. A call that was not answered counts with the time until it was given up.
func probe(ctx context.Context, all []*cell.Session) (took []time.Duration, failed int) {
	var mu sync.Mutex
	var probing sync.WaitGroup
	for i, session := range all {
		probing.Go(func() {
			time.Sleep(probeEvery * time.Duration(i) / time.Duration(len(all)))
			tick := time.NewTicker(probeEvery)
			defer tick.Stop()
			for end := time.Now().Add(probeWindow); time.Now().Before(end); <-tick.C {
				start := time.Now()
				err := session.Extend(ctx)
				mu.Lock()
				took = append(took, time.Since(start))
				if err != nil {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	probing.Wait()
	return took, failed
}
