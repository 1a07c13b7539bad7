package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// What the tests of the package share. Those who share are not parallel, so they need no mutex: see Shared.
var (
	shares bool                  // Main runs the tests
	shared = map[string]*share{} // by type
	ends   []func()              // what ends with the package
)

// share is the server of one type.
type share struct {
	server any
	taken  bool // a test has it
}

// Main runs the tests of a package, and then ends the servers that they have shared. It is for TestMain,
// and exits.
func Main(m *testing.M) {
	shares = true
	code := m.Run()
	for _, end := range slices.Backward(ends) {
		end()
	}
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
	t.Setenv("HOLDFAST_TEST_SHARES", "a server") // fails in a parallel test, and says so
	key := fmt.Sprintf("%T", *new(Server))
	s := shared[key]
	switch {
	case !shares:
		t.Fatal("testserver.Shared: the package's TestMain does not call testserver.Main")
	case s == nil:
		s = &share{server: start(&lasting{t})}
		shared[key] = s
	case s.taken:
		t.Fatal("testserver.Shared: a test asks twice")
	default:
		empty(t, s.server.(Server))
	}
	s.taken = true
	t.Cleanup(func() { s.taken = false })
	return s.server.(Server)
}

// lasting is a test whose servers outlive it. Until the server has started it fails as the test that asked
// first; after that no test is there to fail.
type lasting struct{ testing.TB }

func (l *lasting) Cleanup(end func()) { ends = append(ends, end) }

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
