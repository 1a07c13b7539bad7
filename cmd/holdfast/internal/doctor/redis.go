package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/rueidisconn"
)

// redisChecks are the checks of a Redis server. They share a connection.
var redisChecks = []Check{redisTransport, redisServerChecks}

// redisServer is a server under examination.
type redisServer struct {
	conn    redislock.Conn
	user    string
	info    map[string]string // from INFO; empty if that is forbidden
	conf    map[string]string // from CONFIG GET; empty if that is forbidden
	scratch string            // a key of the doctor's own, with the hash tag of a lock but no key of one
	channel string            // a channel of the doctor's own
	cluster bool              // it is to be a master of a cluster

	replicas int              // how many must acknowledge a lock: hf.replicas
	layout   redislock.Layout // hf.layout
	redisson redislock.RedissonKind
}

// redisServerChecks connects to the server and runs its checks.
func redisServerChecks(ctx context.Context, p Patient) []Finding {
	if p.silent() {
		return nil // the lock's finding says so
	}
	params, u, err := storeurl.Take(p.URL)
	if err != nil {
		return nil // the lock's finding says why
	}
	conn, err := rueidisconn.Dial(u)
	if err != nil {
		return nil // the lock's finding says why
	}
	defer conn.Close()
	r, err := newRedisServer(ctx, conn, u, params.Prefix)
	if err != nil {
		return connectionTrouble("connection", err) // and not: the server does not show it
	}
	return r.examine(ctx)
}

// examine runs the checks of a server.
func (r *redisServer) examine(ctx context.Context) (findings []Finding) {
	for _, check := range []func(context.Context, *redisServer) []Finding{
		redisVersion, redisPlace, redisReplicas, redisEviction, redisPersistence, redisAccess, redisOldRecords,
		redisClockAndLatency, redisStalls, redisClients, redisIdle, redisPushBuffer, redissonData,
	} {
		findings = append(findings, check(ctx, r)...)
	}
	return findings
}

// braces escapes a name in a key, as package redislock does.
var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func scratchKey(prefix, id string) string {
	return redislock.DefaultPrefix + ":{" + braces.Replace(prefix+"holdfast-doctor/"+id) + "}:doctor"
}

func newRedisServer(ctx context.Context, conn redislock.Conn, u *url.URL, prefix string) (*redisServer, error) {
	id := rand.Text()
	r := &redisServer{
		conn: conn, user: "default", info: map[string]string{}, conf: map[string]string{},
		scratch: scratchKey(prefix, id),
		channel: redislock.DefaultPrefix + ":wake:" + id,
	}
	if name := u.User.Username(); name != "" {
		r.user = name
	}
	r.replicas, _ = strconv.Atoi(u.Query().Get("hf.replicas")) // the lock's finding says what is wrong with it
	r.layout = redislock.Layout(u.Query().Get("hf.layout"))
	r.redisson = redislock.RedissonKind(u.Query().Get("hf.redisson"))
	return r, r.read(ctx)
}

// What is read of the server's state, in one round trip.
var (
	sections   = []string{"server", "clients", "memory", "persistence", "replication", "stats", "cluster"}
	parameters = []string{
		"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "stop-writes-on-bgsave-error",
		"min-replicas-to-write", "maxclients", "timeout", "client-output-buffer-limit",
	}
)

// read reads it, as far as the server allows. The error says that the server has not answered.
func (r *redisServer) read(ctx context.Context) error {
	var commands []redislock.Command
	for _, section := range sections {
		commands = append(commands, redislock.Command{Args: []string{"INFO", section}})
	}
	for _, name := range parameters {
		commands = append(commands, redislock.Command{Args: []string{"CONFIG", "GET", name}})
	}
	for _, reply := range r.conn.Do(ctx, commands) {
		if _, refused := errors.AsType[*redislock.ServerError](reply.Err); reply.Err != nil && !refused {
			return reply.Err
		}
		switch v := reply.Value.(type) {
		case string: // of INFO
			for line := range strings.Lines(v) {
				if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
					r.info[name] = value
				}
			}
		case map[string]any: // of CONFIG GET
			for name, value := range v {
				r.conf[name] = fmt.Sprint(value)
			}
		case []any: // the same, by the older protocol
			if len(v) == 2 {
				r.conf[fmt.Sprint(v[0])] = fmt.Sprint(v[1])
			}
		}
	}
	return nil
}

// ask runs a command.
func (r *redisServer) ask(ctx context.Context, args ...string) redislock.Reply {
	return r.conn.Do(ctx, []redislock.Command{{Args: args}})[0]
}

// setting returns a field of INFO, or else a parameter of the configuration. It returns false if
// neither can be read.
func (r *redisServer) setting(field, name string) (string, bool) {
	if value, ok := r.info[field]; ok {
		return value, true
	}
	value, ok := r.conf[name]
	return value, ok
}

// number returns a field of INFO as a number, and 0 if there is none.
func (r *redisServer) number(field string) int64 {
	n, _ := strconv.ParseInt(r.info[field], 10, 64)
	return n
}

// master reports whether the server takes writes, as far as is known.
func (r *redisServer) master() bool {
	return r.info["role"] != "slave" && r.info["redis_mode"] != "sentinel"
}

// notVisible is the finding if the server does not let this user read something.
func notVisible(check, what, risk string) []Finding {
	return []Finding{{
		Check: check, Severity: Note, Found: "not seen: the server does not show this user " + what,
		Risk:   risk,
		Remedy: "ask the server's administrator, or let this user run INFO and CONFIG GET and run doctor again",
	}}
}

// good is a finding that nothing is wrong.
func good(check, format string, args ...any) []Finding {
	return []Finding{{Check: check, Severity: OK, Found: fmt.Sprintf(format, args...)}}
}
