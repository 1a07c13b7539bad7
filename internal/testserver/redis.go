package testserver

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// RedisOptions configure a Redis server. The zero value keeps nothing on disk.
type RedisOptions struct {
	AOF   bool // append every write to a file, and sync it, before it is answered
	Clock bool // with a wall clock of its own; needs gcc too
	// Valkey says that the server is Valkey 9. It needs what scripts/install-valkey installs.
	Valkey bool
	Args   []string // more arguments, such as "--maxmemory", "3mb"
}

// Redis is a private Redis server of one test, with a directory of its own. Its
// methods end the test on failure; call them on the test's own goroutine, one at
// a time.
type Redis struct {
	Addr   string // on the loopback interface, host:port; the same after Start
	Socket string // the path of its unix socket
	Clock  *Clock // its wall clock, if it has one of its own
	*process
}

// valkeyPackage is the name of Valkey 9 in packages.txt; there is no Debian package of it.
// scripts/install-valkey puts it into a directory of its own.
const (
	valkeyPackage = "valkey-9.1.2"
	valkeyDir     = "/usr/local/lib/holdfast-" + valkeyPackage
)

// StartRedis starts a server, which ends with the test. It needs the package
// redis-server: see [Need].
func StartRedis(t testing.TB, o RedisOptions) *Redis {
	t.Helper()
	program := o.program(t)
	dir, err := os.MkdirTemp(memoryDir(t), "holdfast-redis-") // short: the path of a socket has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &Redis{process: &process{t: t, ready: "Ready to accept connections"}, Socket: filepath.Join(dir, "redis.sock")}
	t.Cleanup(r.Kill)
	if o.Clock {
		r.Clock = newClock(t, dir)
		r.env = r.Clock.environ()
	}
	const attempts = 5 // another program may take the port before the server does
	for i := range attempts {
		r.Addr = freeAddr(t)
		_, port, _ := net.SplitHostPort(r.Addr)
		r.args = append([]string{
			program, "--bind", "127.0.0.1", "--port", port, "--unixsocket", r.Socket, "--dir", dir,
			"--daemonize", "no", "--save", "", "--appendonly", yesNo(o.AOF), "--appendfsync", "always",
		}, o.Args...)
		if err = r.start(); err == nil {
			return r
		}
		t.Logf("redis-server, attempt %d: %v", i+1, err)
	}
	t.Fatalf("redis-server did not start: %v", err)
	return nil
}

// program returns the path of the server.
func (o *RedisOptions) program(t testing.TB) string {
	t.Helper()
	if o.Valkey {
		return Need(t, filepath.Join(valkeyDir, "valkey-server"), valkeyPackage)
	}
	return Need(t, "redis-server", "redis-server")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// freeAddr returns an address on the loopback interface on which no program listened a moment
// ago.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Stop shuts the server down, as an operator would.
func (r *Redis) Stop() { r.end(syscall.SIGTERM) }
