package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisOptions configure a Redis server. The zero value keeps nothing on disk.
type RedisOptions struct {
	AOF   bool // append every write to a file, and sync it, before it is answered
	Clock bool // with a wall clock of its own; needs gcc too
	// Fresh says that the server was started just now, and that Holdfast's clients see it: see Serves.
	Fresh bool
	// Valkey says that the server is Valkey 9. It needs what scripts/install-valkey installs.
	Valkey bool
	Args   []string // more arguments, such as "--maxmemory", "3mb"
}

// Redis is a Redis server with a directory of its own.
type Redis struct {
	Addr   string // that of the process, or of what stands before it
	Socket string // the path of its unix socket
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
	program := "redis-server"
	if o.Valkey {
		program = Need(t, filepath.Join(valkeyDir, "valkey-server"), valkeyPackage)
	} else {
		program = Need(t, program, program)
	}
	dir := shortDir(t, memoryDir(t))
	r := &Redis{process: &process{t: t, ready: "Ready to accept connections"}, Socket: filepath.Join(dir, "redis.sock")}
	if o.Clock {
		r.Clock = newClock(t, dir)
		r.env = r.Clock.environ()
	}
	r.serve(func(port string) []string {
		return append([]string{
			program, "--bind", "127.0.0.1", "--port", port, "--unixsocket", r.Socket, "--dir", dir,
			"--daemonize", "no", "--save", "", "--appendonly", yesNo(o.AOF), "--appendfsync", "always",
		}, o.Args...)
	})
	r.Addr = r.process.Addr
	if !o.Fresh {
		r.Serves("{0}")
	}
	return r
}

// Serves makes Holdfast's clients believe that the server has been up for long, so that they need not wait until what
// it may have forgotten is over. That holds until it restarts, is flushed, or takes over from another. The tag is of
// the key in which the server remembers it.
func (r *Redis) Serves(tag string) {
	info := r.Ask("INFO", "server") + r.Ask("INFO", "replication")
	life := ""
	for _, name := range [...]string{"\nrun_id:", "\nmaster_replid:"} {
		_, rest, _ := strings.Cut(info, name)
		life += rest[:min(16, len(rest))]
	}
	r.Ask("SET", "holdfast:life:"+tag, life+" 0 0")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// StartRedisReplicas starts replicas of a server that has none, and returns when each of them follows
// it. They end with the test.
func StartRedisReplicas(t testing.TB, primary *Redis, n int, o RedisOptions) []*Redis {
	t.Helper()
	replicas := make([]*Redis, n)
	for i := range replicas {
		replicas[i] = StartRedis(t, o)
		replicas[i].Follow(primary.Addr)
	}
	primary.AwaitReplicas(n)
	return replicas
}

// Follow makes the server a replica of the one at an address, or of nobody if that is "": then it is a
// primary, as after a fail-over by hand.
func (r *Redis) Follow(address string) {
	r.t.Helper()
	host, port := "NO", "ONE"
	if address != "" {
		host, port, _ = net.SplitHostPort(address)
	}
	if got := r.Ask("REPLICAOF", host, port); got != "OK" {
		r.t.Fatalf("%s, REPLICAOF: %s", r.Addr, got)
	}
}

// awaitInStep waits until a replica has all data of its primary.
func (r *Redis) awaitInStep() {
	await(r.t, r.Addr+" is in step", func() bool { return strings.Contains(r.Ask("INFO", "replication"), "master_link_status:up") })
}

// AwaitReplicas returns when as many replicas have all data of the server and acknowledge what comes.
func (r *Redis) AwaitReplicas(n int) {
	r.t.Helper()
	r.Ask("CONFIG", "SET", "repl-diskless-sync-delay", "0") // else it waits for more of them
	await(r.t, fmt.Sprintf("%s has %d replicas", r.Addr, n), func() bool {
		// A message is replicated, and leaves no key.
		have, err := strconv.Atoi(r.exchange([]string{"PUBLISH", "replicas", ""}, []string{"WAIT", strconv.Itoa(n), "100"}))
		return err == nil && have >= n
	})
}

// Ask sends one command to the server and returns the reply as text: the items of a list are separated
// by spaces. If the server does not answer, the text says why.
func (r *Redis) Ask(args ...string) string { return r.exchange(args) }

// exchange sends commands, and returns the reply to the last.
func (r *Redis) exchange(commands ...[]string) (reply string) {
	c, err := net.DialTimeout("tcp", r.Addr, 10*time.Second)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(c)
	if i := slices.Index(r.args, "--requirepass"); i >= 0 {
		commands = slices.Insert(commands, 0, []string{"AUTH", r.args[i+1]})
	}
	for _, args := range commands {
		fmt.Fprintf(c, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(c, "$%d\r\n%s\r\n", len(a), a)
		}
		if reply, err = readReply(in); err != nil {
			return err.Error()
		}
	}
	return reply
}

// readReply reads a reply as text.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", io.ErrUnexpectedEOF
	}
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$':
		if n < 0 {
			return "", nil
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	case '*':
		var items []string
		for range n {
			item, err := readReply(in)
			if err != nil {
				return "", err
			}
			items = append(items, item)
		}
		return strings.Join(items, " "), nil
	}
	return line[1:], nil
}
