//go:build soak && linux

package dashboards

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/celllock" // of the clients of dashboards_test.go
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/otelhold"
	_ "github.com/holdfastlock/holdfast/redislock"
)

// programEnv is the environment variable with the store of a program with locks.
const programEnv = "HOLDFAST_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if url := os.Getenv(programEnv); url != "" {
		if err := program(context.Background(), url); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// startProgram starts a program with locks, which ends with the test, and returns where it shows its metrics.
func startProgram(t *testing.T, url string) (addr string) {
	t.Helper()
	self, err := os.Executable()
	testserver.Must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), programEnv+"="+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	testserver.Must(t, err)
	testserver.Must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill() // it may have ended
		cmd.Wait()         // it was killed
	})
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		t.Fatalf("the program does not start: %v", err)
	}
	return addr
}

// program is one that uses locks, as docs/observability.md has it.
func program(ctx context.Context, url string) error {
	exporter, err := prometheus.New() // go.opentelemetry.io/otel/exporters/prometheus
	if err != nil {
		return err
	}
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter))) // go.opentelemetry.io/otel/sdk/metric
	http.Handle("/metrics", promhttp.Handler())                                 // github.com/prometheus/client_golang/prometheus/promhttp
	locks, err := otelhold.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	defer locks.Close()

	other, err := otelhold.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	seen := make(chan struct{})
	for _, do := range []func(){
		func() { work(ctx, locks) }, func() { work(ctx, locks) }, func() { work(ctx, other) },
		func() { keep(ctx, locks, "kept", &holdfast.Options{TTL: longest, RenewEvery: 200 * time.Millisecond}) },
		func() { keep(ctx, locks, "hung", &holdfast.Options{TTL: shortest, MaxHold: shortest}) },
		func() { drop(ctx, seen) },
	} {
		go do()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	see := sync.OnceFunc(func() { close(seen) })
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.DefaultServeMux.ServeHTTP(w, r)
		see()
	}))
}

// The TTLs of what the program keeps, and how long its store is silent: the shortest ends then, and the longest does not.
const (
	shortest = 2 * time.Second
	silent   = 5 * time.Second
	longest  = 12 * time.Second
)

// work takes a lock again and again, as others do, and one that is refused.
func work(ctx context.Context, c *holdfast.Client) {
	for ctx.Err() == nil {
		if l, err := c.Mutex("crowd", nil).Acquire(ctx); err == nil {
			time.Sleep(time.Millisecond)
			l.Release()
		}
		if l, err := c.Mutex("kept", nil).TryAcquire(ctx); err == nil {
			l.Release()
		}
	}
}

// keep holds a lock until it is lost, again and again.
func keep(ctx context.Context, c *holdfast.Client, name string, o *holdfast.Options) {
	for ctx.Err() == nil {
		if l, err := c.Mutex(name, o).Acquire(ctx); err == nil {
			<-l.Done()
		}
	}
}

// drop makes a client drop events once the metrics were seen without: a hook does not return before there are more than
// fit.
func drop(ctx context.Context, seen <-chan struct{}) error {
	enough := make(chan struct{})
	c, err := otelhold.New(memlock.NewStore(nil).Client(), &holdfast.ClientOptions{Events: holdfast.Events{
		Released: func(holdfast.Event) { <-enough },
	}}, nil)
	if err != nil {
		return err
	}
	<-seen
	for n := 0; ctx.Err() == nil; n++ {
		l, err := c.Mutex("dropped", nil).Acquire(ctx)
		if err != nil {
			return err
		}
		l.Release()
		if n == manyEvents {
			close(enough)
		}
		if n >= manyEvents {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return ctx.Err()
}

// manyEvents is more than a client keeps for hooks that block.
const manyEvents = 20_000
