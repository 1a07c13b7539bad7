//go:build soak

package bench

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// BenchmarkTenThousand lets clients, 50 in a process, wait for one name, and measures what the server and the clients
// do while nothing happens, and what a waiter takes up. Then each client gets the name once. Redis needs three files for
// each client.
func BenchmarkTenThousand(b *testing.B) {
	for _, s := range []store{redisStore, etcdStore, filesStore} {
		for _, n := range []int{1000, 2000, 4000, 6000, 10_000} {
			b.Run(fmt.Sprintf("%s/clients%d", s.title, n), func(b *testing.B) { manyWait(b, s, n) })
		}
	}
}

// used is what processes have used until an instant, and have then.
type used struct {
	at                            time.Time
	server, clients, memory, kept int64
}

func manyWait(b *testing.B, s store, clients int) {
	var server []int
	var all []used
	work := s.work
	s.work = func(_ context.Context, addr string) (got served, err error) {
		if len(all) == 1 { // before the first of the readings while all wait
			time.Sleep(time.Minute) // until they confirm their places as rarely as they ever do
		}
		others := slices.DeleteFunc(children(b), func(pid int) bool { return slices.Contains(server, pid) })
		all = append(all, used{time.Now(), sum(b, server, ticks), sum(b, others, ticks), sum(b, server, resident), kept(b, s.name, addr)})
		if work != nil {
			got, err = work(b.Context(), addr)
		}
		return got, err
	}
	w := workload{name: "many", about: fmt.Sprintf("%d clients, %d in a process, wait for one name, then each gets it once", clients, ofProcess),
		kind: wait, workers: ofProcess, clients: ofProcess, processes: clients / ofProcess, window: 20 * time.Second, reps: 1,
		columns: slices.Concat(waitColumns[:3], []column{{"scripts/s", func(r result) float64 { return r.Calls }, whole}, fairness}, waitColumns[3:])}
	got := measure(b, &s, w, settings{reps: 1, peers: []string{oursName}}, func() (string, func()) {
		addr, stop := starts[s.name](b)
		server = children(b)
		return addr, stop
	})
	for _, fault := range got.report(&s, w) {
		b.Error(fault)
	}
	if len(all) < 4 {
		b.Fatal("they did not come to wait")
	}
	none, from, to := all[0], all[2], all[3]
	share := func(n int64) float64 { return float64(n) / ticksPerSecond / to.at.Sub(from.at).Seconds() * 100 }
	fmt.Printf("idle: server %.1f %% of a core, clients %.1f %%; for each waiter %d B stored, %d B of the server's memory\n",
		share(to.server-from.server), share(to.clients-from.clients), (to.kept-none.kept)/int64(clients), (to.memory-none.memory)/int64(clients))
}

// children returns the processes that this one has started, from Linux's /proc.
func children(b *testing.B) (pids []int) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		b.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, word := range strings.Fields(string(text)) {
			pid, _ := strconv.Atoi(word)
			pids = append(pids, pid)
		}
	}
	return pids
}

func sum(b *testing.B, pids []int, of func(*testing.B, int) int64) (total int64) {
	for _, pid := range pids {
		total += of(b, pid)
	}
	return total
}

// kept returns how many bytes Redis has for all keys, and how long the files are. Of etcd it is not known.
func kept(b *testing.B, store, addr string) (bytes int64) {
	switch store {
	case "redis":
		client := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, Protocol: 2})
		defer client.Close()
		for _, key := range client.Keys(b.Context(), "*").Val() {
			bytes += client.MemoryUsage(b.Context(), key, 0).Val()
		}
	case "files":
		filepath.WalkDir(addr, func(_ string, e fs.DirEntry, _ error) error {
			if info, err := e.Info(); err == nil && e.Type().IsRegular() {
				bytes += info.Size()
			}
			return nil
		})
	}
	return bytes
}
