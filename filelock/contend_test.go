//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

const (
	contenders = 4
	goroutines = 16
)

// contendFor is how long the processes contend: HOLDFAST_CONTEND, or 5 s.
func contendFor() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("HOLDFAST_CONTEND")); err == nil {
		return d
	}
	return 5 * time.Second
}

// TestContention lets 4 processes of 16 goroutines contend for one name. Each
// holder adds 1 to a number in a file, in two steps. No addition may be lost,
// and nobody may starve.
func TestContention(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "number"), []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var children []*child
	for range contenders {
		children = append(children, spawn(t, "contend", dir, nil))
	}
	for _, c := range children {
		c.expect("ready")
	}
	for _, c := range children {
		c.tell("go")
	}
	var turns []int
	for _, c := range children {
		var mine []int
		if err := json.Unmarshal([]byte(c.expect("turns")), &mine); err != nil {
			t.Fatal(err)
		}
		turns = append(turns, mine...)
	}
	total, squares, least := 0, 0, turns[0]
	for _, n := range turns {
		total, squares, least = total+n, squares+n*n, min(least, n)
	}
	if number := readNumber(t, dir); number != total {
		t.Errorf("P1: %d turns were taken, and the number is %d: %d updates are lost", total, number, total-number)
	}
	jain := float64(total) * float64(total) / float64(len(turns)*squares)
	share := float64(least*len(turns)) / float64(total)
	t.Logf("%d turns in %v (%.0f/s); Jain index %.4f; the least served goroutine had %.0f%% of an equal share",
		total, contendFor(), float64(total)/contendFor().Seconds(), jain, 100*share)
	if jain < 0.9 || share < 0.5 {
		t.Errorf("P8: the turns are unfair: %v", turns)
	}
}

func readNumber(t testing.TB, dir string) int {
	text, err := os.ReadFile(filepath.Join(dir, "number"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// contend is a child that contends for a name, each goroutine by itself.
func contend(dir string) error {
	d, err := Open(context.Background(), Options{Dir: filepath.Join(dir, "locks")})
	if err != nil {
		return err
	}
	number, err := os.OpenFile(filepath.Join(dir, "number"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var line string
	fmt.Scanln(&line)
	ctx, cancel := context.WithTimeout(context.Background(), contendFor())
	defer cancel()
	turns, errs := make([]int, goroutines), make([]error, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for errs[i] == nil && ctx.Err() == nil {
				turns[i], errs[i] = add(ctx, d.(*client), number, turns[i])
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	text, err := json.Marshal(turns)
	fmt.Println("turns", string(text))
	d.Close()
	return err
}

// add takes the name, adds 1 to the number and releases the name. It returns
// how many turns there were, with this one.
func add(ctx context.Context, c *client, number *os.File, turns int) (int, error) {
	r := request("contended")
	g, err := c.Enqueue(ctx, r)
	if err != nil && ctx.Err() == nil {
		g, err = waitFor(ctx, c, r)
	}
	if err != nil {
		g = driver.Grant{Request: r} // to withdraw
		if ctx.Err() != nil {
			err = nil
		}
	} else {
		err = increment(number)
		turns++
	}
	if err == nil {
		err = c.Release(context.Background(), []driver.Grant{g})[0]
	}
	return turns, err
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
