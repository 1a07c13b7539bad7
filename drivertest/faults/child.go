package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// Main runs the tests. If a test has started the test's program again, as a child that it can kill and stop, Main
// runs that child instead. TestMain of a package that calls [Run] or [Forgets] MUST call it.
func Main(m *testing.M) {
	testserver.Play(map[string]func([]string) error{
		part: func(args []string) error { return obey(args[0], args[1]) }, contender: contend,
	})
	os.Exit(m.Run())
}

// part is what a child plays. Its arguments are the URL of its store, and the TTL of its hold.
const part = "faults"

// obey runs a child. It acquires the lock "x" and watches its lease, and says "has it", or "had it" if the lease is
// lost when it is watched first. When its standard input ends, it releases the lease, and writes the hold as JSON.
func obey(url, ttl string) error {
	c, err := holdfast.Open(context.Background(), url)
	if err != nil {
		return err
	}
	long, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	lease, err := c.Mutex("x", &holdfast.Options{TTL: long}).Acquire(context.Background())
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	answered := sync.Once{}
	hold := Watch(lease, stop, func() { answered.Do(func() { fmt.Println("has it") }) })
	answered.Do(func() { fmt.Println("had it and", hold.Lost) })
	<-stop
	hold.Who = fmt.Sprintf("process %d", os.Getpid())
	if err := lease.Release(); err != nil && !errors.Is(err, holdfast.ErrLost) {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(hold)
}

// child is a process that acquires the lock "x".
type child struct {
	*testserver.Child
	s *scene
}

// child starts a process, which is killed when the test ends.
func (s *scene) child(ttl time.Duration) child {
	s.Helper()
	return child{testserver.StartChild(s, part, s.URL(s.addr), ttl.String()), s}
}

// hasIt waits until the child has the lock.
func (c child) hasIt(within time.Duration, why string) {
	c.s.Helper()
	late := time.AfterFunc(within, c.Kill)
	if line, err := c.Line(); !late.Stop() || err != nil || line != "has it" {
		c.s.Fatalf("%s: a child said %q (%v), or nothing within %v", why, line, err, within)
	}
}

// gives lets the child release its lease, and returns the hold.
func (c child) gives() (h Hold) {
	c.s.Helper()
	c.Close()
	line, err := c.Line()
	if err != nil || json.Unmarshal([]byte(line), &h) != nil {
		c.s.Fatalf("a child said %q (%v), not its hold", line, err)
	}
	return h
}
