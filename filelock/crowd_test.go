//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// taken is one hold of a process, by the clock of the host.
type taken struct {
	Token    int64
	Shared   bool
	From, To driver.Instant // between these it was trusted
}

func init() {
	childModes["crowd"] = func(dir string) error { return inCrowd(dir, takeTurns) }
	childModes["history"] = func(dir string) error { return inCrowd(dir, takeAtRandom) }
}

// inCrowd is a child that does something with a name.
func inCrowd(dir string, do func(dir string, c *holdfast.Client, args string) ([]taken, error)) error {
	ctx := context.Background()
	d, err := Open(ctx, Options{Dir: filepath.Join(dir, "locks")})
	if err != nil {
		return err
	}
	if err := d.(*client).attach(ctx); err != nil {
		return err
	}
	c, err := holdfast.New(d, nil)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var args string
	fmt.Scanln(&args)
	holds, err := do(dir, c, args)
	if err != nil {
		return err
	}
	text, err := json.Marshal(holds)
	fmt.Println("holds", string(text))
	return errors.Join(err, c.Close())
}

// takeTurns takes the name so many times, and adds 1 to the number each time.
func takeTurns(dir string, c *holdfast.Client, args string) (holds []taken, err error) {
	var rounds int
	fmt.Sscan(args, &rounds)
	number, err := os.OpenFile(filepath.Join(dir, "number"), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer number.Close()
	lock := c.Mutex("crowd", nil)
	for range rounds {
		lease, err := lock.Acquire(context.Background())
		if err != nil {
			return nil, err
		}
		from := driver.HostClock.Now()
		if err := increment(number); err != nil {
			return nil, err
		}
		holds = append(holds, taken{int64(lease.Token()), false, from, driver.HostClock.Now()})
		if err := lease.Release(); err != nil {
			return nil, err
		}
	}
	return holds, nil
}

// takeAtRandom takes the name for a while in any way.
func takeAtRandom(_ string, c *holdfast.Client, args string) (holds []taken, err error) {
	length, err := time.ParseDuration(args)
	if err != nil {
		return nil, err
	}
	rw := c.RWMutex("crowd", nil)
	for end := time.Now().Add(length); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.Int64N(int64(2*time.Second))))
		lock, shared := rw.Write, rand.IntN(3) == 0
		if shared {
			lock = rw.Read
		}
		take := lock.Acquire
		if rand.IntN(5) == 0 {
			take = lock.TryAcquire
		}
		lease, err := take(ctx)
		cancel()
		if err != nil {
			if !errors.Is(err, holdfast.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
			continue
		}
		h := taken{Token: int64(lease.Token()), Shared: shared, From: driver.HostClock.Now()}
		h.To = h.From
		for range rand.IntN(3) {
			now := driver.HostClock.Now()
			if lease.Err() != nil {
				break
			}
			h.To = now // before this it was trusted still
			time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond))))
		}
		holds = append(holds, h)
		lease.Release() // of a hold that is lost it says so
	}
	return holds, nil
}
