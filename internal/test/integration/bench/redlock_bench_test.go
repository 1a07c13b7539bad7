//go:build soak

package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	syncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
	"github.com/holdfastlock/holdfast/quorum"
)

// redlocker is one client of five servers that vote.
type redlocker struct {
	name string
	open func(ctx context.Context, addresses []string) (Locker, error)
}

var redlockers = []redlocker{{"holdfast", openRedlock}, {"redsync", openRedsyncRedlock}}

// openRedlock opens Holdfast's, as a URL does.
func openRedlock(ctx context.Context, addresses []string) (Locker, error) {
	c, err := holdfast.Open(ctx, "redlock://"+strings.Join(addresses, ","))
	if err != nil {
		return nil, err
	}
	return redlocked{c}, nil
}

type redlocked struct{ *holdfast.Client }

func (r redlocked) Lock(ctx context.Context, name string) (func() error, error) {
	lease, err := r.Mutex(name, nil).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Release, nil
}

// openRedsyncRedlock opens redsync's, over go-redis, with its own delays.
func openRedsyncRedlock(_ context.Context, addresses []string) (Locker, error) {
	var pools []redsyncredis.Pool
	var clients []*redis.Client
	for _, address := range addresses {
		client := redis.NewClient(&redis.Options{Addr: address})
		clients, pools = append(clients, client), append(pools, syncgoredis.NewPool(client))
	}
	return &redsynced{redsync.New(pools...), func() error {
		var errs []error
		for _, c := range clients {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}}, nil
}

// startRedlock starts five servers, and says that they are new.
func startRedlock(b *testing.B) (addresses []string) {
	for range 5 {
		addresses = append(addresses, testserver.StartRedis(b, testserver.RedisOptions{}).Addr)
	}
	u, err := driver.ParseURL("redlock://" + strings.Join(addresses, ","))
	if err != nil {
		b.Fatal(err)
	}
	d, err := driver.Open(b.Context(), u)
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(quorum.Init(b.Context(), d), d.Close()); err != nil {
		b.Fatal(err)
	}
	return addresses
}

// BenchmarkRedlock measures locks over five servers beside redsync: pairs of acquire and release by one
// goroutine, on a name that nobody else wants, and by 64 with a name each; and one name that eight clients
// want: how often it goes from one of them to another (a client that takes the name again and again while the
// others sleep does not count), and how often it is taken in all. When they have finished, no server may have a
// vote. The two alternate, so that other load on the machine hits both alike; shown are medians, and the median of
// the ratios of redsync's time to ours, or of our rate to redsync's. Run it with -benchtime 10x.
func BenchmarkRedlock(b *testing.B) {
	for _, w := range []struct {
		name    string
		clients int
		figures []string
		one     func(b *testing.B, lockers []Locker) []float64
	}{
		{"pair", 1, []string{"pairs/s"}, func(b *testing.B, l []Locker) []float64 { return redlockPairs(b, l, 1, 500) }},
		{"pair64", 1, []string{"pairs/s"}, func(b *testing.B, l []Locker) []float64 { return redlockPairs(b, l, 64, 2000) }},
		{"contended", 8, []string{"owners/s", "holds/s"}, redlockContended},
	} {
		b.Run(w.name, func(b *testing.B) {
			addresses := startRedlock(b)
			measured := map[string][][]float64{}
			lockers := map[string][]Locker{}
			for _, r := range redlockers {
				for range w.clients {
					l, err := r.open(b.Context(), addresses)
					if err != nil {
						b.Fatal(err)
					}
					defer l.Close()
					lockers[r.name] = append(lockers[r.name], l)
				}
			}
			for b.Loop() {
				for _, r := range redlockers {
					measured[r.name] = append(measured[r.name], w.one(b, lockers[r.name]))
				}
				noVotes(b, addresses)
			}
			for i, figure := range w.figures {
				var all, peer, ratios []float64
				for round, ours := range measured["holdfast"] {
					theirs := measured["redsync"][round]
					all, peer, ratios = append(all, ours[i]), append(peer, theirs[i]), append(ratios, ours[i]/theirs[i])
				}
				b.ReportMetric(medianOf(all), figure)
				b.ReportMetric(medianOf(peer), "redsync-"+figure)
				b.ReportMetric(medianOf(ratios), "×redsync-"+figure)
			}
			b.ReportMetric(0, "ns/op") // of both together: says nothing
		})
	}
}

// noVotes fails if a server keeps a vote when all is released: one that an attempt has left there.
func noVotes(b *testing.B, addresses []string) {
	b.Helper()
	for _, address := range addresses {
		c, err := holdfast.Open(b.Context(), "redis://"+address)
		if err != nil {
			b.Fatal(err)
		}
		for late := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			names := 0
			for info, err := range c.List(b.Context(), "bench/") {
				if err != nil {
					b.Fatal(err)
				}
				names += len(info.Holders)
			}
			if names == 0 {
				break
			}
			if time.Now().After(late) {
				b.Fatalf("%d votes are left at %s", names, address)
			}
		}
		c.Close()
	}
}

// redlockPairs returns how many pairs there are in a second.
func redlockPairs(b *testing.B, lockers []Locker, workers, pairs int) []float64 {
	took := timed(b, workers, pairs, func(worker int) error {
		unlock, err := lockers[0].Lock(b.Context(), fmt.Sprint("bench/", worker))
		if err != nil {
			return err
		}
		return unlock()
	})
	return []float64{1e6 / took}
}

// redlockContended returns how often in a second the name goes from one client to another, and how often it
// is taken.
func redlockContended(b *testing.B, lockers []Locker) []float64 {
	const long = time.Second
	ctx, cancel := context.WithTimeout(b.Context(), long)
	defer cancel()
	var changes, holds, inside, last atomic.Int64
	var all sync.WaitGroup
	for i, l := range lockers {
		all.Go(func() {
			for ctx.Err() == nil {
				unlock, err := l.Lock(ctx, "bench/contended")
				if err != nil {
					continue
				}
				if inside.Add(1) != 1 {
					b.Error("two hold the name")
				}
				holds.Add(1)
				if last.Swap(int64(i+1)) != int64(i+1) {
					changes.Add(1)
				}
				inside.Add(-1)
				if err := unlock(); err != nil && ctx.Err() == nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	return []float64{float64(changes.Load()) / long.Seconds(), float64(holds.Load()) / long.Seconds()}
}
