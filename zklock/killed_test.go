//go:build soak

package zklock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// asHolder is the environment variable that makes the test's program take permits, again and again, until
// it is killed: it has the server's address.
const asHolder = "ZKLOCK_TEST_HOLDER"

func TestMain(m *testing.M) {
	if addr := os.Getenv(asHolder); addr != "" {
		holdPermits(addr)
	}
	goleak.VerifyTestMain(m)
}

// killedSlots is the size of the semaphore of which holders are killed.
const killedSlots = 3

func holdPermits(addr string) {
	c, err := connect(context.Background(), Config{Servers: []string{addr}, Poll: time.Second})
	for n := 0; err == nil; n++ {
		r := driver.Request{
			Name: "killed", Owner: fmt.Sprintf("%d of %d, %d", n, os.Getpid(), rand.Uint64()), Mode: driver.Slot,
			Slots: killedSlots, Permits: 1 + rand.IntN(2), TTL: time.Second,
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		var g driver.Grant
		if g, err = c.Enqueue(ctx, r); errors.Is(err, driver.ErrHeld) {
			g, err = await(ctx, c, r)
		}
		if err == nil {
			fmt.Println("held")
			time.Sleep(time.Duration(rand.IntN(int(5 * time.Millisecond))))
			err = c.Release(ctx, []driver.Grant{g})[0]
		}
		cancel()
	}
	fmt.Println(err)
	os.Exit(1)
}

// TestKilledHolders: processes that hold permits, or ask for them, are killed at any moment. There are never
// more leases than slots, and the others go on.
func TestKilledHolders(t *testing.T) {
	t.Parallel() // it waits most of the time, for sessions to end
	x := fixture{start(t)}
	java := x.raw(t)
	java.container("/killed/leases")
	var holders sync.WaitGroup
	held := make(chan struct{}, 1000)
	stop := make(chan struct{})
	for range 4 {
		holders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), asHolder+"="+x.Members[0].Addr)
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Error(err)
					return
				}
				life := rand.IntN(40) // holds until it is killed
				for lines := bufio.NewScanner(out); lines.Scan(); life-- {
					if line := lines.Text(); line != "held" {
						t.Errorf("a holder ended: %s", line)
					}
					held <- struct{}{}
					if life <= 0 {
						break
					}
				}
				cmd.Process.Kill()
				cmd.Wait() // says that it was killed
			}
		})
	}
	for total := 0; total < 80 && !t.Failed(); {
		replies, err := java.Do(t.Context(), zk.Children("/killed/leases", nil))
		if err != nil {
			t.Fatal(err)
		}
		leases := 0
		for _, child := range replies[0].Children {
			if strings.Contains(child, stemLease) {
				leases++
			}
		}
		if leases > killedSlots {
			t.Errorf("P1: a semaphore of %d has %d leases: %q", killedSlots, leases, replies[0].Children)
		}
		select {
		case <-held:
			total++
		case <-time.After(time.Millisecond):
		}
	}
	close(stop)
	go func() { // so that nobody waits for it
		for range held {
		}
	}()
	holders.Wait()
	close(held)
	c := x.open(t)
	all := request("killed")
	all.Mode, all.Slots, all.Permits = driver.Slot, killedSlots, killedSlots
	if _, err := c.Enqueue(t.Context(), all); err != nil && !errors.Is(err, driver.ErrHeld) {
		t.Fatal(err)
	}
	release(t, c, granted(t, c, all))
}
