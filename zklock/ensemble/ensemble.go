// Package ensemble asks ZooKeeper's servers what they are and how they do, and tries what they let
// clients do. It is for holdfast doctor, and for others who look after an ensemble.
package ensemble

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/zklock"
	"github.com/holdfastlock/holdfast/zklock/internal/zk"
)

// Server is what one server tells of itself.
type Server struct {
	Addr string // host:port, as in the configuration
	Err  error  // why it told nothing; the rest is empty then

	// Role is "leader", "follower", "observer", "standalone" or "read-only"; "not serving" if it looks
	// for a leader, or is a leader that takes no clients; "" if it does not tell.
	Role    string
	Version string // such as 3.9.5

	// Values are its settings and metrics, by the names that admin servers use: tick_time,
	// max_fsynctime. A server tells them by the commands conf and mntr, or by its admin server.
	Values map[string]string
	// Source says how Values were told: "conf and mntr", "the admin server", or "" if they were not.
	Source string
}

// Number returns a value that is a number.
func (s *Server) Number(name string) (float64, bool) {
	n, err := strconv.ParseFloat(s.Values[name], 64)
	return n, err == nil
}

// askWithin bounds what one server is asked.
const askWithin = 5 * time.Second

// AdminPort is the port of admin servers unless their configuration says otherwise.
const AdminPort = 8080

// Ask asks all servers of c at once, each for five seconds at most. It uses Servers, Dial and TLS of c.
// A server that refuses commands of four letters is asked by its admin server, by HTTP without TLS, at
// the port Admin of c; 0: AdminPort.
func Ask(ctx context.Context, c zklock.Config) []Server {
	servers := make([]Server, len(c.Servers))
	var all sync.WaitGroup
	for i, addr := range c.Servers {
		all.Go(func() { servers[i] = ask(ctx, c, addr) })
	}
	all.Wait()
	return servers
}

func ask(ctx context.Context, c zklock.Config, addr string) Server {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	s := Server{Addr: addr, Values: map[string]string{}}
	wire := wire(c)
	info, err := zk.Probe(ctx, wire, addr)
	if err != nil {
		s.Err = err
		return s
	}
	s.Role, s.Version = string(info.Role), release(info.Version)
	told := 0
	for _, command := range []string{"conf", "mntr"} {
		if text, err := zk.FourLetters(ctx, wire, addr, command); err == nil {
			told += s.read(text)
		}
	}
	if told > 0 {
		s.Source = "conf and mntr"
	} else if s.askAdmin(ctx, cmp.Or(c.Admin, AdminPort)) {
		s.Source = "the admin server"
	}
	if s.Role == "" {
		s.Role = s.Values["server_state"]
	}
	if s.Version == "" {
		s.Version = release(s.Values["version"])
	}
	return s
}

// wire returns how servers are reached.
func wire(c zklock.Config) zk.Config {
	return zk.Config{Servers: c.Servers, Dial: c.Dial, TLS: c.TLS, AnyServer: true}
}

// release returns the number at the start of a version, 3.9.5 of "3.9.5-293c89, built on …".
func release(version string) string {
	version, _, _ = strings.Cut(version, ",")
	number, _, _ := strings.Cut(strings.TrimSpace(version), "-")
	return number
}

// read reads the answer to conf or mntr: lines such as "tickTime=2000" and "zk_max_latency	7". It
// returns how many there were.
func (s *Server) read(text string) (n int) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if key, value, ok := strings.Cut(line, "\t"); ok && strings.HasPrefix(key, "zk_") {
			s.Values[strings.TrimPrefix(key, "zk_")] = value
			n++
		} else if key, value, ok := strings.Cut(line, "="); ok && !strings.ContainsAny(key, " \t") {
			s.Values[snake(key)] = value
			n++
		}
	}
	return n
}

// snake returns tick_time of tickTime.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// mostAdmin bounds the answer of an admin server.
const mostAdmin = 1 << 20

// askAdmin asks the admin server, and reports whether it told something.
func (s *Server) askAdmin(ctx context.Context, port int) (told bool) {
	host, _, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return false
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, command := range []string{"configuration", "monitor", "system_properties"} {
		url := "http://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/commands/" + command
		if values, err := get(ctx, client, url); err == nil {
			for key, value := range values {
				s.Values[key] = value
			}
			told = true
		}
	}
	return told
}

// get reads an answer of an admin server: an object, of which it keeps texts, numbers and truth values.
func get(ctx context.Context, client *http.Client, url string) (map[string]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	reply, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, errors.New(reply.Status)
	}
	decoder := json.NewDecoder(io.LimitReader(reply.Body, mostAdmin))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for key, value := range object {
		switch value.(type) {
		case string, json.Number, bool:
			values[key] = fmt.Sprint(value)
		}
	}
	return values, nil
}
