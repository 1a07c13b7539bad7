package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Main runs the tests of a package, and then ends the servers that they have shared. It is for TestMain,
// and exits.
func Main(m *testing.M) {
	forPackage.running = true
	code := m.Run()
	forPackage.end()
	os.Exit(code)
}

// Shared returns the server of this type that the tests of the package share. The first test that asks
// starts it, and it ends with the package, whose TestMain must call [Main]. A test has it to itself until
// the test ends, and finds it empty. So a test must not ask twice, and must not kill the server or change
// its settings, nor be parallel. In the soak each test has a server of its own.
func Shared[Server any](t testing.TB, start func(testing.TB) Server, empty func(testing.TB, Server)) Server {
	t.Helper()
	if Soak {
		return start(t)
	}
	if !forPackage.running {
		t.Fatal("testserver.Shared: the package's TestMain does not call testserver.Main")
	}
	// A parallel test that waits for the server would keep one of the few places that the subtests of the
	// test that has the server may need. Setenv fails in parallel tests, and says so.
	t.Setenv("HOLDFAST_TEST_SHARES", "a server")
	s := one[Server]()
	s.mu.Lock()
	t.Cleanup(s.mu.Unlock)
	if !s.started {
		s.server = start(&lasting{TB: t})
		s.started = true
	} else {
		empty(t, s.server)
	}
	return s.server
}

// shared is the server of one type.
type shared[Server any] struct {
	mu      sync.Mutex
	started bool
	server  Server
}

// sharedServers has a *shared for each type of server.
var sharedServers sync.Map

func one[Server any]() *shared[Server] {
	s, _ := sharedServers.LoadOrStore(fmt.Sprintf("%T", *new(Server)), &shared[Server]{})
	return s.(*shared[Server])
}

// packageEnd is what ends when the tests of the package have ended.
type packageEnd struct {
	running bool // Main runs the tests
	mu      sync.Mutex
	ends    []func()
}

var forPackage packageEnd

func (p *packageEnd) end() {
	for _, end := range slices.Backward(p.ends) {
		end()
	}
}

// lasting is a test whose servers outlive it. Until the server has started it fails as the test that asked
// first; after that no test is there to fail.
type lasting struct{ testing.TB }

func (l *lasting) Cleanup(end func()) {
	forPackage.mu.Lock()
	defer forPackage.mu.Unlock()
	forPackage.ends = append(forPackage.ends, end)
}

func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "holdfast-shared-")
	Must(l, err)
	l.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TakeTurn waits until no other test of this host has a turn, in whatever process, and keeps the turn until the test
// ends. A test takes one that keeps the processors busy by itself: two side by side would measure how long a process
// waits for a processor. It must not be called again by the same test.
func TakeTurn(t testing.TB) {
	t.Helper()
	unlock, err := lockFile(filepath.Join(os.TempDir(), "holdfast-turn-"+strconv.Itoa(os.Getuid())))
	Must(t, err)
	t.Cleanup(func() { unlock() })
}
