package testserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// StartRedisReplicas starts replicas of a server, and returns when each of them follows it. They end
// with the test.
func StartRedisReplicas(t testing.TB, primary *Redis, n int, o RedisOptions) []*Redis {
	t.Helper()
	primary.Command("CONFIG", "SET", "repl-diskless-sync-delay", "0") // else it waits for more replicas
	replicas := make([]*Redis, n)
	for i := range replicas {
		replicas[i] = StartRedis(t, o)
		replicas[i].Follow(primary.Addr)
	}
	for _, r := range replicas {
		r.AwaitLink()
	}
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
	r.Command("REPLICAOF", host, port)
}

// AwaitLink returns when the server, a replica, has all data of its primary and follows it.
func (r *Redis) AwaitLink() {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(r.Command("INFO", "replication"), "master_link_status:up"); {
		if time.Now().After(end) {
			r.t.Fatalf("%s does not follow its primary within a minute", r.Addr)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Command sends one command on a connection of its own, and returns the reply: text, or the digits of a
// number. A refusal, or a list, ends the test.
func (r *Redis) Command(args ...string) string {
	r.t.Helper()
	reply, err := r.command(args)
	if err != nil {
		r.t.Fatalf("%s: %q: %v", r.Addr, args, err)
	}
	return reply
}

func (r *Redis) command(args []string) (string, error) {
	c, err := net.Dial("tcp", r.Addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	request := fmt.Sprintf("*%d\r\n", len(args))
	for _, a := range args {
		request += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(c, request); err != nil {
		return "", err
	}
	from := bufio.NewReader(c)
	line, err := from.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+', ':':
		return text, nil
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 1<<20 {
			break
		}
		b := make([]byte, n)
		_, err = io.ReadFull(from, b)
		return string(b), err
	}
	return "", fmt.Errorf("the server answered %q", line)
}
