//go:build soak

package bench

import (
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// BenchmarkNames lets one client, and a hundred, hold 100,000 names. Beside that one that holds names takes and releases
// another ("beside"), and so does a client without holds ("apart").
func BenchmarkNames(b *testing.B) {
	for _, s := range stores {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d", s.title, n), func(b *testing.B) {
				addr, stop := starts[s.name](b)
				defer stop()
				servers := children(b)
				clients := make([]*holdfast.Client, n+1)
				for i := range clients {
					var err error
					clients[i], err = holdfast.Open(b.Context(), s.url(addr))
					testserver.Must(b, err)
					defer clients[i].Close()
				}
				_, empty := usage(b, servers, addr)
				leases := take(b, clients[:n], 100_000)
				used, full := usage(b, servers, addr)
				m := measurement{workload: workload{window: settingsNow(b, 1, 10*time.Minute).window}, store: s, addr: addr}
				own, does := cpuOfSelf(), make(chan result)
				go func() { r, _ := m.rate(); does <- r }()
				watch(b, leases, m.window, 1, map[string]*holdfast.Client{"beside": clients[0], "apart": clients[n]})
				did, percent := <-does, 100/m.window.Seconds()
				usedAfter, _ := usage(b, servers, addr)
				b.ReportMetric((full-empty)/float64(len(leases)), "B/lease-in-store")
				b.ReportMetric(did.Commands, "commands/s")
				b.ReportMetric(did.Calls, "scripts/s")
				b.ReportMetric((usedAfter-used)*percent, "%core-server")
				b.ReportMetric((cpuOfSelf()-own).Seconds()*percent, "%core-clients")
			})
		}
	}
}

// BenchmarkDeadShard lets a client hold 30,000 names in a cluster of three masters, and stops or kills one: its holders
// are told "late" after their deadlines at most. The others hold and lock as if it were not there.
func BenchmarkDeadShard(b *testing.B) {
	for how, end := range map[string]func(*testserver.Redis){"stopped": (*testserver.Redis).Pause, "killed": (*testserver.Redis).Kill} {
		b.Run(how, func(b *testing.B) {
			servers := testserver.StartCluster(b, testserver.ClusterOptions{Args: []string{"--cluster-require-full-coverage", "no"}})
			d, err := driver.Open(b.Context(), &url.URL{Scheme: "redis+cluster", Host: servers.Addrs()})
			testserver.Must(b, err)
			client, err := holdfast.New(d, nil)
			testserver.Must(b, err)
			defer client.Close()
			shards, _ := driver.As[driver.Sharder](d)
			dead := func(name string) bool { return shards.Shard(driver.Request{Name: name}) == servers.Servers[0].Addr }
			var alive []*holdfast.Lease
			var told sync.WaitGroup
			late := make([]time.Duration, 30_000)
			for i, lease := range take(b, []*holdfast.Client{client}, len(late)) {
				if !dead(lease.Name()) {
					alive = append(alive, lease)
					continue
				}
				told.Go(func() { <-lease.Done(); late[i] = time.Since(lease.ValidUntil()) })
			}
			pair := 0
			for dead("bench/" + strconv.Itoa(pair)) {
				pair++
			}
			time.Sleep(ttl / 2) // all have been renewed
			end(servers.Servers[0])
			watch(b, alive, ttl*4/3, pair, map[string]*holdfast.Client{"beside": client})
			told.Wait()
			b.ReportMetric(float64(len(late)-len(alive)), "of-dead")
			b.ReportMetric(float64(slices.Max(late))/1e6, "late-ms")
		})
	}
}

// take takes names, by all clients in turn.
func take(b *testing.B, clients []*holdfast.Client, n int) []*holdfast.Lease {
	leases, errs := make([]*holdfast.Lease, n), make([]error, n)
	before, takers := heap(), sync.WaitGroup{}
	for taker := range 64 {
		takers.Go(func() {
			for i := taker; i < n; i += 64 {
				leases[i], errs[i] = clients[i%len(clients)].Mutex("bench/kept/"+strconv.Itoa(i), nil).Acquire(b.Context())
			}
		})
	}
	takers.Wait()
	testserver.Must(b, errs...)
	b.ReportMetric((heap()-before)/float64(n), "B/lease")
	b.ReportMetric(0, "ns/op")
	return leases
}

// watch looks at leases once a second. What a deadline left at the next look, by which the lease may have been renewed,
// counts as left. Meanwhile each client takes and releases a name ten times a second.
func watch(b *testing.B, leases []*holdfast.Lease, window time.Duration, pair int, by map[string]*holdfast.Client) {
	until, least, renewed, took := make([]time.Time, len(leases)), ttl, -len(leases), map[string][]time.Duration{}
	for start := time.Now(); time.Since(start) < window; time.Sleep(100 * time.Millisecond) {
		for name, client := range by {
			begun := time.Now()
			testserver.Must(b, pairOf(b, ours(client))(pair))
			took[name] = append(took[name], time.Since(begun))
		}
		for i := 0; len(took["beside"])%10 == 0 && i < len(leases); i++ {
			now := leases[i].ValidUntil()
			if !until[i].IsZero() {
				least = min(least, time.Until(until[i]))
			}
			if now.Sub(until[i]) > time.Second {
				until[i] = now
				renewed++ // or it is the first look
			}
		}
	}
	held := slices.DeleteFunc(leases, func(lease *holdfast.Lease) bool { return lease.Err() != nil })
	b.ReportMetric(float64(len(until)-len(held)), "lost")
	b.ReportMetric(least.Seconds()/ttl.Seconds(), "least-of-TTL")
	b.ReportMetric(float64(renewed)/window.Seconds(), "renewed/s")
	for name, all := range took {
		b.ReportMetric(float64(quantile(all, 0.99))/1e6, name+"-p99-ms")
		b.ReportMetric(float64(quantile(all, 1))/1e6, name+"-longest-ms")
	}
}

// usage returns how many seconds of processor time the servers have used, and how much memory they have. Without servers
// it returns how much of the disk the directory takes up.
func usage(b *testing.B, servers []int, dir string) (seconds, size float64) {
	if len(servers) == 0 {
		du, _ := exec.Command("du", "-sk", dir).Output()
		fmt.Sscan(string(du), &size)
		return 0, size * 1024
	}
	return float64(sum(b, servers, ticks)) / ticksPerSecond, float64(sum(b, servers, resident))
}
