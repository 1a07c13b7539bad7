//go:build soak

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// BenchmarkNames lets one client, and a hundred in four processes, hold 100,000 names for a TTL of 30 s, and measures
// who renews how much, and how late. Beside that one goroutine takes and releases a name 20 times a second, by a client
// that holds names and by one that holds none.
func BenchmarkNames(b *testing.B) {
	set := settingsNow(b, 1, 10*time.Minute)
	for _, s := range []*store{&redisStore, &etcdStore, &postgresStore, &mariaDBStore, &filesStore} {
		fmt.Printf("\n100,000 names held in %s for %v\n\n| clients | taken in | B/lease: client | store | commands/s | scripts/s | holds renewed/s | "+
			"server's share of a core | clients' | least left of the TTL | lost | pair beside p50; p99; longest | of a client without holds |\n"+
			"|---|---|---|---|---|---|---|---|---|---|---|---|---|\n", s.title, set.window)
		b.Run(s.title+"/one", func(b *testing.B) { benchmarkNames(b, s, set.window, 1, keeper{Clients: 1, Names: 100_000}) })
		b.Run(s.title+"/hundred", func(b *testing.B) { benchmarkNames(b, s, set.window, 4, keeper{Clients: 25, Names: 1000}) })
	}
}

func benchmarkNames(b *testing.B, s *store, window time.Duration, processes int, k keeper) {
	addr, stop := starts[s.name](b)
	defer stop()
	k.Store, k.Addr, k.Arena = s.name, addr, filepath.Join(b.TempDir(), "arena")
	a, err := openArena(k.Arena)
	testserver.Must(b, err)
	_, _, empty := usage(b, s, addr)
	var all []*testserver.Child
	begun := time.Now()
	for k.Process = range processes {
		text, err := json.Marshal(k)
		testserver.Must(b, err)
		all = append(all, testserver.StartChild(b, keepers, string(text)))
	}
	defer a.stage.Store(over)
	if !within(5*time.Minute, func() bool { return int(a.ready.Load()) == processes }) {
		b.Fatalf("%d of %d processes have their names", a.ready.Load(), processes)
	}
	took := time.Since(begun)
	a.stage.Store(measured)
	clients, servers, full := usage(b, s, addr)
	does, err := (&measurement{workload: workload{window: window}, store: s, addr: addr}).rate()
	testserver.Must(b, err)
	clientsAfter, serversAfter, _ := usage(b, s, addr)
	a.stage.Store(over)
	sum := kept{Least: ttl}
	for _, child := range all {
		var got kept
		line, err := child.Line()
		testserver.Must(b, err, json.Unmarshal([]byte(line), &got))
		sum.Bytes, sum.Lost, sum.Renewed = sum.Bytes+got.Bytes/float64(processes), sum.Lost+got.Lost, sum.Renewed+got.Renewed
		sum.Least = min(sum.Least, got.Least)
		for i, pairs := range got.Pairs {
			sum.Pairs[i] = append(sum.Pairs[i], pairs...)
		}
	}
	names, seconds := float64(processes*k.Clients*k.Names), window.Seconds()
	fmt.Printf("| %d | %v | %.0f | %.0f | %.0f | %.0f | %.0f | %.1f %% | %.1f %% | %.2f | %d | %s | %s |\n", processes*k.Clients, took.Round(100*time.Millisecond),
		sum.Bytes, float64(full-empty)/names, does.Commands, does.Calls, float64(sum.Renewed)/seconds, float64(serversAfter-servers)/seconds,
		float64(clientsAfter-clients)/seconds, sum.Least.Seconds()/ttl.Seconds(), sum.Lost, three(sum.Pairs[0]), three(sum.Pairs[1]))
	if sum.Lost > 0 {
		b.Errorf("%d holds were lost", sum.Lost)
	}
}

// three are the median of durations, their 99th percentile, and the longest.
func three(all []time.Duration) string {
	return span(float64(quantile(all, 0.5))) + "; " + span(float64(quantile(all, 0.99))) + "; " + span(float64(quantile(all, 1)))
}

// usage returns how many ticks clients and servers have used, and how many bytes the servers have, or their disk.
func usage(b *testing.B, s *store, addr string) (clients, servers, bytes int64) {
	self, err := os.Executable()
	testserver.Must(b, err)
	var family func(pid int)
	family = func(pid int) {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			for _, field := range strings.Fields(string(text)) {
				child, _ := strconv.Atoi(field)
				if program, _ := os.Readlink("/proc/" + field + "/exe"); program == self {
					clients += ticks(b, child)
				} else {
					servers, bytes = servers+ticks(b, child), bytes+resident(b, child)
				}
				family(child)
			}
		}
	}
	family(os.Getpid())
	if s == &filesStore {
		err = filepath.WalkDir(addr, func(_ string, d fs.DirEntry, err error) error {
			if info, no := d.Info(); no == nil {
				bytes += 512 * info.Sys().(*syscall.Stat_t).Blocks
			}
			return err
		})
		testserver.Must(b, err)
	}
	return clients, servers, bytes
}

func init() {
	parts[keepers] = func(args []string) error {
		var k keeper
		if err := json.Unmarshal([]byte(args[0]), &k); err != nil {
			return err
		}
		r, err := k.run(context.Background())
		return errors.Join(err, json.NewEncoder(os.Stdout).Encode(r))
	}
}

// keepers is the part of a process that holds names. Its argument is a keeper.
const keepers = "keepers"

// keeper is such a process. Each of its clients holds so many names.
type keeper struct {
	Store, Addr, Arena      string
	Process, Clients, Names int
}

// kept is what it has seen.
type kept struct {
	Bytes         float64 // of the heap, for each lease
	Renewed, Lost int
	Least         time.Duration      // so much trust at least was left to any lease when its renewal came
	Pairs         [2][]time.Duration // of a client that holds names, and of one that does not
}

func (k keeper) run(ctx context.Context) (r kept, err error) {
	a, err := openArena(k.Arena)
	if err != nil {
		return r, err
	}
	clients := make([]*holdfast.Client, k.Clients+1) // the last holds nothing
	for i := range clients {
		if clients[i], err = holdfast.Open(ctx, storeOf(k.Store).url(k.Addr)); err != nil {
			return r, err
		}
	}
	before := heap()
	leases, err := holdNames(ctx, clients[:k.Clients], fmt.Sprintf("%s%d/", keptPrefix, k.Process), k.Clients*k.Names)
	if err != nil {
		return r, err
	}
	r.Bytes = (heap() - before) / float64(len(leases))
	a.ready.Add(1)
	await(a, measured)
	isOver := func() bool { return a.stage.Load() == over }
	var pairing sync.WaitGroup
	var errs [2]error
	for i, c := range []*holdfast.Client{clients[0], clients[k.Clients]} {
		lock := c.Mutex(fmt.Sprintf("bench/pair%d/%d", i, k.Process), nil)
		pairing.Go(func() { r.Pairs[i], errs[i] = pairsOf(ctx, lock, isOver) })
	}
	least, renewed := watch(leases, isOver)
	pairing.Wait()
	r.Least, r.Renewed = slices.Min(least), renewed
	for _, lease := range leases {
		if lease.Err() != nil {
			r.Lost++
		}
	}
	return r, errors.Join(errs[:]...)
}

// holdNames takes n names, by all clients in turn.
func holdNames(ctx context.Context, clients []*holdfast.Client, prefix string, n int) ([]*holdfast.Lease, error) {
	leases, errs := make([]*holdfast.Lease, n), make([]error, n)
	var takers sync.WaitGroup
	for taker := range 64 {
		takers.Go(func() {
			for i := taker; i < n; i += 64 {
				leases[i], errs[i] = clients[i%len(clients)].Mutex(prefix+strconv.Itoa(i), nil).Acquire(ctx)
			}
		})
	}
	takers.Wait()
	return leases, errors.Join(errs...)
}

// pairsOf takes and releases a name 20 times a second, and returns how long each time took.
func pairsOf(ctx context.Context, lock *holdfast.Lock, over func() bool) (took []time.Duration, err error) {
	for !over() && err == nil {
		begun, lease := time.Now(), (*holdfast.Lease)(nil)
		if lease, err = lock.Acquire(ctx); err == nil {
			err = lease.Release()
		}
		took = append(took, time.Since(begun))
		time.Sleep(50 * time.Millisecond)
	}
	return took, err
}

// watch looks at leases once a second. It returns how much of its trust each had left at least: what its deadline at one
// look left until the next one, by which it may have been renewed. And it returns how many renewals there were.
func watch(leases []*holdfast.Lease, over func() bool) (least []time.Duration, renewed int) {
	until := make([]time.Time, len(leases))
	for i, lease := range leases {
		until[i], least = lease.ValidUntil(), append(least, ttl)
	}
	for !over() {
		time.Sleep(time.Second)
		for i, lease := range leases {
			least[i] = min(least[i], time.Until(until[i]))
			if now := lease.ValidUntil(); now.Sub(until[i]) > time.Second {
				until[i] = now
				renewed++
			}
		}
	}
	return least, renewed
}

// BenchmarkDeadShard lets a client hold 30,000 names in a cluster of three masters, and stops or kills one of them. It
// measures until all holds of that master are lost: how late their holders are told, how much trust the others have
// left at least, and how long pairs on names of other masters take.
func BenchmarkDeadShard(b *testing.B) {
	const names = 30_000
	fmt.Printf("\n%d names held in a cluster, of which a master is dead for the TTL\n\n"+
		"| master | holds: its | lost | told after the deadline at most | the others' | lost | least left of the TTL | pair p50; p99; longest |\n|---|---|---|---|---|---|---|---|\n", names)
	for how, end := range map[string]func(*testserver.Redis){"stopped": (*testserver.Redis).Pause, "killed": (*testserver.Redis).Kill} {
		b.Run(how, func(b *testing.B) {
			servers := testserver.StartCluster(b, testserver.ClusterOptions{Args: []string{"--cluster-require-full-coverage", "no"}})
			d, err := driver.Open(b.Context(), &url.URL{Scheme: "redis+cluster", Host: servers.Addrs()})
			testserver.Must(b, err)
			client, err := holdfast.New(d, nil)
			testserver.Must(b, err)
			leases, err := holdNames(b.Context(), []*holdfast.Client{client}, keptPrefix, names)
			testserver.Must(b, err)
			shards, _ := driver.As[driver.Sharder](d)
			onDead := func(name string) bool { return shards.Shard(driver.Request{Name: name}) == servers.Servers[0].Addr }
			dead := make([]bool, names)
			for i, lease := range leases {
				dead[i] = onDead(lease.Name())
			}
			pair := 0
			for pair = 0; onDead(fmt.Sprint("bench/pair", pair)); pair++ {
			}
			time.Sleep(ttl / 2) // all have been renewed
			end(servers.Servers[0])
			var told sync.WaitGroup
			var isOver atomic.Bool
			late := make([]time.Duration, names)
			for i, lease := range leases {
				if dead[i] {
					told.Go(func() {
						<-lease.Done()
						late[i] = time.Since(lease.ValidUntil())
					})
				}
			}
			go func() { told.Wait(); time.Sleep(ttl / 3); isOver.Store(true) }()
			var pairs []time.Duration
			var pairing sync.WaitGroup
			pairing.Go(func() {
				pairs, err = pairsOf(b.Context(), client.Mutex(fmt.Sprint("bench/pair", pair), nil), isOver.Load)
			})
			least, _ := watch(leases, isOver.Load)
			pairing.Wait()
			testserver.Must(b, err)
			lost, of, left := map[bool]int{}, map[bool]int{}, ttl
			for i, lease := range leases {
				of[dead[i]]++
				if lease.Err() != nil {
					lost[dead[i]]++
				}
				if !dead[i] {
					left = min(left, least[i])
				}
			}
			fmt.Printf("| %s | %d | %d | %s | %d | %d | %.2f | %s |\n", how, of[true], lost[true], span(float64(slices.Max(late))),
				of[false], lost[false], left.Seconds()/ttl.Seconds(), three(pairs))
			if lost[false] > 0 || lost[true] < of[true] {
				b.Error("not the holds of the dead master are lost")
			}
			servers.Servers[0].Kill()
			client.Close()
		})
	}
}
