//go:build soak

package bench

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// Of BenchmarkCellSessions.
const (
	usualSessions  = 10_000
	sessionsOfEach = 500               // processes
	sessionsOpen   = 150 * time.Second // within which all must be there
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
		"| TTL | calls as of so many sessions of 30 s | memory each | server's share of a core | clients' | others' | KeepAlive p50 | p99 | calls that failed | lost |\n"+
		"|---|---|---|---|---|---|---|---|---|---|\n", sessions)
	for _, ttl := range []time.Duration{30, 10, 6, 4, 3, 2} {
		ttl *= time.Second
		b.Run(ttl.String(), func(b *testing.B) { benchmarkSessions(b, sessions/sessionsOfEach, ttl) })
	}
}

func benchmarkSessions(b *testing.B, processes int, of time.Duration) {
	cert, key := testserver.Certificate(b, b.TempDir(), "", 1)
	server := testserver.StartCell(b, testserver.CellOptions{Cert: cert, Key: key}).Members[0]
	defer server.Kill()
	params := url.Values{"hf.ca": {cert}, "hf.ttl": {of.String()}}.Encode()
	t := task{
		Store: "cell", Peer: "holdfast", Addr: server.Addr + ";" + filepath.Join(server.Data, "etcd.sock") + ";" + params,
		Workload: idleSessions, Processes: processes, Clients: sessionsOfEach, Arena: filepath.Join(b.TempDir(), "arena"),
		Window: sessionsOpen + sessionsSettle + sessionsWindow + probeWindow,
	}
	if err := newArena(t.Arena); err != nil {
		b.Fatal(err)
	}
	a, err := openArena(t.Arena)
	if err != nil {
		b.Fatal(err)
	}
	beside := startProbers(b, server.Addr, cert)
	alone := resident(b, server)
	answers := startProcesses(t)
	if !within(sessionsOpen, func() bool { return int(a.ready.Load()) == t.Processes || len(answers) > 0 }) || len(answers) > 0 {
		a.stage.Store(over)
		b.Fatalf("%d of %d processes have their sessions: %v", a.ready.Load(), t.Processes, (<-answers).err)
	}
	time.Sleep(sessionsSettle)
	before, ticks, start := loadNow(), ticksOf([]int{server.PID()}), time.Now()
	time.Sleep(sessionsWindow)
	after, elapsed := loadNow(), time.Since(start)
	cores := func(ticks int64) float64 { return float64(ticks) / ticksPerSecond / elapsed.Seconds() }
	share, all := cores(ticksOf([]int{server.PID()})-ticks), cores(after.own-before.own)
	each := float64(resident(b, server)-alone) / float64(processes*sessionsOfEach)
	took, failed := probeAll(b.Context(), beside, probeWindow, probeEvery)
	a.stage.Store(over)
	lost := 0
	for range t.Processes {
		got := <-answers
		if got.err != nil {
			b.Error(got.err)
		}
		lost += got.Lost
	}
	fmt.Printf("| %v | %d | %.1f KiB | %.0f %% | %.0f %% | %.0f %% | %s | %s | %d of %d | %d |\n", of,
		int64(processes*sessionsOfEach)*int64(ttl/time.Second)/int64(of/time.Second), each/1024, 100*share, 100*(all-share),
		100*(cores(after.busy-before.busy)-all),
		span(float64(quantile(took, 0.5))), span(float64(quantile(took, 0.99))), failed, len(took), lost)
	b.ReportMetric(each, "B/session")
	b.ReportMetric(100*share, "%core")
	b.ReportMetric(float64(quantile(took, 0.99))/1e6, "p99-ms")
	b.ReportMetric(0, "ns/op")
}

func resident(b *testing.B, m *testserver.CellMember) int64 {
	b.Helper()
	bytes, err := residentOf(m.PID())
	if err != nil {
		b.Fatal(err)
	}
	return bytes
}

// startProbers opens clients that will call KeepAlive beside what goes on.
func startProbers(b *testing.B, addr, cert string) (all []*prober) {
	b.Helper()
	text, err := os.ReadFile(cert)
	if err != nil {
		b.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(text)
	for range probers {
		p, err := newProber(b.Context(), addr, config)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(p.close)
		all = append(all, p)
	}
	return all
}
