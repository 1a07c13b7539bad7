package drivertest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder stands in for a test, to watch the suite find a driver broken. It records failures instead of failing.
type recorder struct {
	testing.TB
	name string

	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Name() string              { return r.name }
func (r *recorder) Log(...any)                {}
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Errorf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)) }
func (r *recorder) Fatal(a ...any)            { r.fail(fmt.Sprint(a...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) { r.fail(fmt.Sprintf(f, a...)); runtime.Goexit() }

func (r *recorder) fail(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, message)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// sub runs a subtest and its cleanups. Its failures are recorded with its parent's, after the case's name.
func (r *recorder) sub(name string, f func(testing.TB)) {
	child := &recorder{TB: r.TB, name: name}
	var wg sync.WaitGroup
	wg.Go(func() { // in a goroutine, because Fatal ends it
		defer child.cleanUp()
		f(child)
	})
	wg.Wait()
	for _, message := range child.failures {
		r.fail(name + ": " + message)
	}
}

func (r *recorder) cleanUp() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		f()
	}
}

// found reports whether the case has a failure whose text begins with the promise, and has the kind in it.
func (r *recorder) found(caseName, promise, kind string) bool {
	if caseName != "" {
		promise = caseName + ": " + promise
	}
	for _, f := range r.failures {
		if strings.HasPrefix(f, promise+":") && strings.Contains(f, kind) {
			return true
		}
	}
	return false
}
