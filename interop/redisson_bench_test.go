//go:build soak

package interop

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// BenchmarkRedisson measures the same work by Redisson in a warm Java virtual machine and by Holdfast, in turn, on
// one server. Clients have a connection each, and all of a language are in one process.
//
//	ours-pairs/s, theirs-pairs/s   pairs of taking and releasing, of all clients together: the median round
//	ratio                          of the two in one round: the median, and with -v all of them
//	ours-cpu-us, theirs-cpu-us     of the server, for each pair, in microseconds
//	ours-requests/s …              of a thousand who only wait, with commands/s, those within scripts included, and the
//	                               server's time in milliseconds a second
func BenchmarkRedisson(b *testing.B) {
	server := testserver.StartRedis(b, testserver.RedisOptions{})
	java, holdfast := startWarm(b), startHoldfast(b)
	for _, c := range []struct {
		what, kind            string
		clients, names, times int
	}{
		{"alone", "mutex", 1, 1, 5000},
		{"names=64", "mutex", 64, 64, 300},
		{"clients=16", "mutex", 16, 1, 200},
		{"fair/clients=16", "fair", 16, 1, 200},
	} {
		b.Run(c.what, func(b *testing.B) {
			services := map[*program][]*service{}
			for _, p := range []*program{java, holdfast} {
				for range c.clients {
					services[p] = append(services[p], p.open(b, "redis://"+server.Addr, watchdog))
				}
			}
			ours, theirs := new(rounds), new(rounds)
			for round := range warmUps + countedRounds {
				for p, all := range map[*program]*rounds{java: theirs, holdfast: ours} {
					name := fmt.Sprint(b.Name(), "/", strings.Fields(p.name)[0])
					all.play(b, server, services[p], c.kind, name, c.names, c.times, round >= warmUps)
				}
			}
			for _, s := range slices.Concat(services[java], services[holdfast]) {
				s.do("ok", "close")
			}
			compare(b, "pairs/s", ours.rates, theirs.rates)
			compare(b, "cpu-us", ours.cpu, theirs.cpu)
		})
	}
	for _, kind := range []string{"mutex", "fair"} {
		b.Run("idle/"+kind, func(b *testing.B) { idle(b, kind, java, holdfast) })
	}
}

// startWarm starts a program in Java as a service runs it: with all that the compiler of the virtual machine can do.
func startWarm(b *testing.B) *program {
	dir := testserver.NeedPeers(b)
	return startProgram(b, library{name: "Redisson " + redissons[0], command: func(string) *exec.Cmd {
		cmd := inJavaWith(dir, filepath.Join("java", "redisson-"+redissons[0]), "RedissonPeer")
		cmd.Args = slices.DeleteFunc(cmd.Args, func(arg string) bool { return arg == tieredC1 })
		return cmd
	}})
}

// How many rounds each of the two plays.
const (
	warmUps       = 4
	countedRounds = 7
)

// rounds are the results of one of the two.
type rounds struct{ rates, cpu []float64 }

// play has all services take and release at once.
func (all *rounds) play(b *testing.B, server *testserver.Redis, services []*service, kind, name string, names, times int, counts bool) {
	b.Helper()
	before, begin := serverCPU(b, server), time.Now()
	for i, s := range services {
		s.tell("burst %s %s/%d %d", kind, name, i%names, times)
	}
	for _, s := range services {
		if answer := s.answer(); strings.Trim(answer, "0123456789") != "" {
			b.Fatal(answer)
		}
	}
	if pairs := float64(len(services) * times); counts {
		all.rates = append(all.rates, pairs/time.Since(begin).Seconds())
		all.cpu = append(all.cpu, (serverCPU(b, server)-before)/pairs*1e6)
	}
}

// compare reports the medians of what was measured in turn, and of the ratios.
func compare(b *testing.B, unit string, ours, theirs []float64) {
	b.Helper()
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, ours[i]/theirs[i])
	}
	b.Logf("%s: Holdfast %.3g, Redisson %.3g, ratio %.3g", unit, ours, theirs, ratios)
	for what, numbers := range map[string][]float64{"ours-": ours, "theirs-": theirs, "ratio-": ratios} {
		slices.Sort(numbers)
		b.ReportMetric(numbers[len(numbers)/2], what+unit)
	}
	b.ReportMetric(0, "ns/op") // says nothing here
}

// info returns a number of the server's, the sum if there are several.
func info(t testing.TB, server *testserver.Redis, name string) (sum float64) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^`+name+`([0-9.]+)`).FindAllStringSubmatch(server.Ask("INFO", "all"), -1)
	if found == nil {
		t.Fatalf("the server does not tell %s", name)
	}
	for _, f := range found {
		n, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

func serverCPU(t testing.TB, server *testserver.Redis) float64 {
	t.Helper()
	return info(t, server, "used_cpu_(?:user|sys):")
}

// A hundred clients of each language have ten waiters each for one lock. They are measured for as long as a waiter in
// Java sleeps, twice: it asks when the TTL that it was told is over, and all of them do so at about the same time.
const (
	idleClients = 100
	idleWaiters = 10
	idleFor     = 2 * watchdog
)

// idle measures what a thousand who only wait ask of their server, of which each language has its own.
func idle(b *testing.B, kind string, java, holdfast *program) {
	what := map[string]string{
		"requests/s": `cmdstat_(?:evalsha|eval|ping|subscribe|unsubscribe):calls=`, "commands/s": "total_commands_processed:",
		"cpu-ms/s": "used_cpu_(?:user|sys):",
	}
	crowds, before := map[*program]*crowd{}, map[string]float64{}
	for _, p := range []*program{java, holdfast} {
		crowds[p] = gather(b, p, kind)
	}
	time.Sleep(watchdog / 3) // all wait
	for unit, name := range what {
		for _, c := range crowds {
			before[c.Addr+unit] = info(b, c.Redis, name)
		}
	}
	time.Sleep(idleFor)
	for unit, name := range what {
		seen := map[*program]float64{}
		for p, c := range crowds {
			seen[p] = (info(b, c.Redis, name) - before[c.Addr+unit]) / idleFor.Seconds()
			if unit == "cpu-ms/s" {
				seen[p] *= 1000
			}
		}
		compare(b, unit, []float64{seen[holdfast]}, []float64{seen[java]})
	}
	for _, c := range crowds {
		c.end()
	}
}

// crowd waits for a lock on a server of its own.
type crowd struct {
	*testserver.Redis
	holder  *service
	waiters []*service
}

func gather(b *testing.B, p *program, kind string) *crowd {
	b.Helper()
	c := &crowd{Redis: testserver.StartRedis(b, testserver.RedisOptions{})}
	c.holder = p.open(b, "redis://"+c.Addr, watchdog)
	c.holder.do("held", "lock h %s n 0", kind)
	for range idleClients {
		s := p.open(b, "redis://"+c.Addr, watchdog)
		s.tell("waiters %s n %d", kind, idleWaiters)
		c.waiters = append(c.waiters, s)
	}
	return c
}

// end lets all have the lock.
func (c *crowd) end() {
	c.holder.do("ok", "end h")
	for _, s := range c.waiters {
		s.finish()
	}
	for _, s := range append(c.waiters, c.holder) {
		s.do("ok", "close")
	}
}
