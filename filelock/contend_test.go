//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

const (
	contenders = 4
	goroutines = 16
)

func init() {
	childModes["contend"] = func(dir string) error { return contend(dir, false) }
	childModes["contendrenewed"] = func(dir string) error { return contend(dir, true) }
}

// contend is a child that contends for a name, each goroutine by itself. With
// renewed, holds are renewed as soon as they arrive, which makes a full TTL of
// what was a claim of two polls.
func contend(dir string, renewed bool) error {
	d, err := Open(context.Background(), Options{Dir: filepath.Join(dir, "locks")})
	if err != nil {
		return err
	}
	if err := d.(*client).attach(context.Background()); err != nil {
		return err
	}
	number, err := os.OpenFile(filepath.Join(dir, "number"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var line string
	fmt.Scanln(&line)
	length, err := time.ParseDuration(line)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	start, errs := time.Now(), make([]error, goroutines)
	all, inside := make([]int, goroutines), make([]int, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				var added int
				added, errs[i] = add(ctx, d.(*client), number, renewed)
				all[i] += added
				if at := time.Since(start); at > length/10 && at < length*9/10 {
					inside[i] += added
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	text, err := json.Marshal([][]int{all, inside})
	fmt.Println("holds", string(text))
	d.Close()
	return err
}

// add takes the name, adds 1 to the number and releases the name. It returns
// what it has added, 0 or 1.
func add(ctx context.Context, c *client, number *os.File, renewed bool) (added int, err error) {
	r := request("contended")
	g, err := c.Enqueue(ctx, r)
	if err != nil && ctx.Err() == nil {
		g, err = waitFor(ctx, c, r)
	}
	if err == nil && renewed {
		if err := renew(c, g); driver.Gone(err) {
			return 0, nil // stopped for longer than the claim
		} else if err != nil {
			return 0, err
		}
	}
	if err != nil {
		g = driver.Grant{Request: r} // to withdraw
		if ctx.Err() != nil {
			err = nil
		}
	} else {
		err = increment(number)
		added = 1
	}
	if err == nil {
		err = c.Release(context.Background(), []driver.Grant{g})[0]
	}
	return added, err
}

func increment(number *os.File) error {
	var b [20]byte
	n, err := number.ReadAt(b[:], 0)
	if n == 0 {
		return err
	}
	i, err := strconv.Atoi(string(b[:n]))
	if err != nil {
		return err
	}
	_, err = number.WriteAt(strconv.AppendInt(nil, int64(i)+1, 10), 0)
	return err
}
