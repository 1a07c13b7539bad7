//go:build soak

package toylock

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/chaos"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/drivertest"
	"github.com/holdfastlock/holdfast/drivertest/faults"
)

func TestConformance(t *testing.T) {
	_, addr := start(t)
	drivertest.Run(t, drivertest.Harness{
		Open: func(t testing.TB) driver.Driver { return dial(t, addr) },
		Transport: func(t testing.TB) (driver.Driver, drivertest.Transport) {
			proxy := chaos.StartProxy(t, addr)
			return dial(t, proxy.Addr), proxy
		},
		Operations: 500, // of each random history, so that this page is quick; leave it out
		Parallel:   8,   // cases at the same time: the server does one thing after the other
	})
}

func dial(t testing.TB, addr string) driver.Driver {
	t.Helper()
	d, err := driver.Open(t.Context(), &url.URL{Scheme: "toy", Host: addr})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The environment variables that make the test's program a server.
const serveAt, serveFile = "TOYLOCK_ADDR", "TOYLOCK_FILE"

func TestMain(m *testing.M) {
	if addr := os.Getenv(serveAt); addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			panic(err)
		}
		fmt.Println(l.Addr())
		panic(Serve(l, os.Getenv(serveFile)))
	}
	faults.Main(m)
}

// server is a store that runs in another process.
type server struct {
	testing.TB
	addr, file string
	cmd        *exec.Cmd
}

// start starts a server, which chooses its port and ends with the test.
func start(t testing.TB) (faults.Server, string) {
	s := &server{TB: t, addr: "127.0.0.1:0", file: filepath.Join(t.TempDir(), "store")}
	t.Cleanup(s.Kill)
	s.Start()
	return s, s.addr
}

func (s *server) Start() {
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), serveAt+"="+s.addr, serveFile+"="+s.file)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Fatalf("the server does not serve: %v", err)
	}
	s.addr = strings.TrimSpace(addr) // the same after a restart
}

func (s *server) Kill() {
	s.cmd.Process.Kill() // fails if it has ended
	s.cmd.Wait()         // says that it was killed
}

func (s *server) signal(sig os.Signal) {
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.Fatal(err)
	}
}

func (s *server) Pause()  { s.signal(syscall.SIGSTOP) }
func (s *server) Resume() { s.signal(syscall.SIGCONT) }

func TestFaults(t *testing.T) {
	faults.Run(t, faults.Harness{
		Start: start,
		URL:   func(addr string) string { return "toy://" + addr },
		// A waiter polls, and is served by luck.
		Goroutines: 4,
	})
}

func TestLock(t *testing.T) {
	_, addr := start(t)
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, "toy://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		return lease.Err() // the work
	})
	if err != nil {
		t.Error(err)
	}
}
