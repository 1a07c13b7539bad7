package etcdlock

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// crowdJob is what one process of a crowd gets: so many clients, each with connections of
// its own, all of which want one name.
type crowdJob struct {
	Addrs, Name, Way string // Way is "holdfast" or "stock"
	Clients          int
	Once             bool // each client takes the name once; else until it is told to stop
}

// crowdResult is what a process of a crowd has done.
type crowdResult struct {
	Counts []int // holds of each client
	Holds  []crowdHold
	Errors []string
}

// crowdHold is one hold of it.
type crowdHold struct {
	At     int64   // when it was granted, in ms of the wall clock
	Waited float64 // seconds
}

const crowdEnv = "ETCDLOCK_TEST_CROWD"

// crowdLock takes a lock and returns what releases it.
type crowdLock func(context.Context) (release func() error, err error)

// open opens one client.
func (job *crowdJob) open() (crowdLock, error) {
	ctx := context.Background()
	if job.Way == "stock" {
		etcd, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(job.Addrs, ",")})
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(etcd)
		if err != nil {
			return nil, err
		}
		mutex := concurrency.NewMutex(session, job.Name)
		return func(ctx context.Context) (func() error, error) {
			err := mutex.Lock(ctx)
			return func() error { return mutex.Unlock(context.Background()) }, err
		}, nil
	}
	locks, err := holdfast.Open(ctx, "etcd://"+job.Addrs)
	if err != nil {
		return nil, err
	}
	lock := locks.Mutex(job.Name, nil)
	return func(ctx context.Context) (func() error, error) {
		lease, err := lock.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return lease.Release, nil
	}, nil
}

// crowd is the processes of a crowd.
type crowd struct {
	testing.TB
	processes []*crowdProcess
}

type crowdProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// perProcess is how many clients of a crowd are in one process.
const perProcess = 50

// startCrowd starts so many clients, and returns when all are connected.
func startCrowd(t testing.TB, clients int, job crowdJob) *crowd {
	t.Helper()
	w := &crowd{TB: t}
	for left := clients; left > 0; left -= perProcess {
		job.Clients = min(left, perProcess)
		text, err := json.Marshal(job)
		if err != nil {
			t.Fatal(err)
		}
		p := &crowdProcess{cmd: exec.Command(os.Args[0])}
		p.cmd.Env = append(os.Environ(), crowdEnv+"="+string(text))
		p.cmd.Stderr = os.Stderr
		out, err := p.cmd.StdoutPipe()
		if err == nil {
			p.in, err = p.cmd.StdinPipe()
		}
		if err == nil {
			err = p.cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		p.out = bufio.NewReader(out)
		w.processes = append(w.processes, p)
	}
	t.Cleanup(w.kill)
	for _, p := range w.processes {
		if _, err := p.out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *crowd) kill() {
	for _, p := range w.processes {
		p.cmd.Process.Kill() // fails if it has ended
		p.cmd.Wait()         // says that it was killed
	}
}

// say tells all processes to begin, or to stop.
func (w *crowd) say() {
	for _, p := range w.processes {
		if _, err := io.WriteString(p.in, "\n"); err != nil {
			w.Error(err)
		}
	}
}

// result waits for the processes and adds up what they have done.
func (w *crowd) result() (all crowdResult) {
	w.Helper()
	for _, p := range w.processes {
		var one crowdResult
		if err := json.NewDecoder(p.out).Decode(&one); err != nil {
			w.Fatal(err)
		}
		all.Counts = append(all.Counts, one.Counts...)
		all.Holds = append(all.Holds, one.Holds...)
		all.Errors = append(all.Errors, one.Errors...)
	}
	return all
}

// jain is Jain's index of fairness: 1 if all have as much.
func (r *crowdResult) jain() float64 {
	var sum, squares float64
	for _, n := range r.Counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / squares / float64(len(r.Counts))
}

// usage is what a member has done so far.
type usage struct {
	calls   map[string]float64 // requests by method; of streams the messages too
	seconds float64            // of processor time
}

func used(t testing.TB, addr string) usage {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	u := usage{calls: map[string]float64{}}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseFloat(number[strings.LastIndexByte(number, ' ')+1:], 64)
		if err != nil {
			continue
		}
		if _, method, ok := strings.Cut(name, `grpc_method="`); ok && strings.HasPrefix(name, "grpc_server_msg_received_total{") {
			u.calls[method[:strings.IndexByte(method, '"')]] += n
		}
		if name == "process_cpu_seconds_total" {
			u.seconds = n
		}
	}
	return u
}

// since returns what was used after another.
func (u usage) since(before usage) (d usage, calls float64) {
	d = usage{map[string]float64{}, u.seconds - before.seconds}
	for m, n := range u.calls {
		if n -= before.calls[m]; n > 0 {
			d.calls[m] = n
			calls += n
		}
	}
	return d, calls
}

func (u usage) per(n float64) string {
	var b strings.Builder
	for _, m := range slices.Sorted(func(yield func(string) bool) {
		for m := range u.calls {
			if !yield(m) {
				return
			}
		}
	}) {
		if each := u.calls[m] / n; each >= 0.05 {
			fmt.Fprintf(&b, "%s %.1f, ", m, each)
		}
	}
	return b.String() + fmt.Sprintf("%.2f ms of the server", u.seconds/n*1000)
}

// BenchmarkCrowd hands a name over among clients that each have connections of their own,
// 50 to a process: ours and etcd's own Mutex, in turns. Once a client has let go of the
// name it wants it again.
func BenchmarkCrowd(b *testing.B) {
	const window = 5 * time.Second
	for _, clients := range []int{4, 16, 64, 256, 1000} {
		for _, way := range []string{"holdfast", "stock"} {
			b.Run(fmt.Sprintf("%s/%d", way, clients), func(b *testing.B) {
				for range b.N {
					server := testserver.StartEtcd(b, testserver.EtcdOptions{Sync: true})
					began := time.Now()
					w := startCrowd(b, clients, crowdJob{Addrs: server.Addrs(), Name: "crowd", Way: way})
					opened := time.Since(began)
					w.say()
					time.Sleep(time.Duration(clients) * 8 * time.Millisecond) // until all have come
					before, from := used(b, server.Addrs()), time.Now()
					time.Sleep(window)
					to := time.Now()
					d, calls := used(b, server.Addrs()).since(before)
					w.say()
					r := w.result()
					w.kill()
					var waits []float64
					for _, h := range r.Holds {
						if h.At >= from.UnixMilli() && h.At < to.UnixMilli() {
							waits = append(waits, h.Waited)
						}
					}
					n := float64(len(waits))
					rate := n / to.Sub(from).Seconds()
					b.Logf("%d clients opened in %v; in %v %.0f holds, %.0f/s, Jain %.3f; each: %s", clients, opened, to.Sub(from), n, rate, r.jain(), d.per(max(n, 1)))
					if len(r.Errors) > 0 {
						b.Logf("%d errors; one: %s", len(r.Errors), r.Errors[0])
					}
					if n == 0 {
						b.Error("none was served")
						continue
					}
					slices.Sort(waits)
					b.ReportMetric(waits[int(math.Ceil(n*0.99))-1]/(float64(clients)/rate), "p99/fair")
					b.ReportMetric(rate, "owner-changes/s")
					b.ReportMetric(calls/n, "messages/change")
					b.ReportMetric(r.jain(), "jain")
				}
			})
		}
	}
}

// BenchmarkIdleCrowd counts what clients ask for that only wait, each with connections of
// its own.
func BenchmarkIdleCrowd(b *testing.B) {
	const window = 6 * time.Second
	for _, clients := range []int{64, 1000} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			for range b.N {
				server := testserver.StartEtcd(b, testserver.EtcdOptions{Sync: true})
				locks, err := holdfast.Open(b.Context(), "etcd://"+server.Addrs())
				if err != nil {
					b.Fatal(err)
				}
				lease, err := locks.Mutex("crowd", nil).Acquire(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				w := startCrowd(b, clients, crowdJob{Addrs: server.Addrs(), Name: "crowd", Way: "holdfast", Once: true})
				w.say()
				time.Sleep(5*time.Second + time.Duration(clients)*5*time.Millisecond) // until all have come
				before := used(b, server.Addrs())
				time.Sleep(window)
				d, calls := used(b, server.Addrs()).since(before)
				each := float64(clients) * window.Seconds()
				b.Logf("each of %d clients and second: %s", clients, d.per(each))
				b.ReportMetric(calls/each, "messages/client/s")
				b.ReportMetric(d.seconds/window.Seconds(), "server-cores")
				began := time.Now()
				if err := lease.Release(); err != nil {
					b.Error(err)
				}
				w.result()
				b.ReportMetric(time.Since(began).Seconds(), "s/all-served")
				w.kill()
				locks.Close()
			}
		})
	}
}
