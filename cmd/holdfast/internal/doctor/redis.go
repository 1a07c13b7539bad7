package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/redislock"
)

// redisTransport is the check of the connections to servers of Redis, however many there are.
var redisTransport = transportOf("rediss", "let the server listen with TLS and use a URL that begins with rediss")

// redisChecks are the checks of a Redis server, or of the primary that sentinels name; clusterChecks those of each
// master of a cluster.
var (
	redisChecks   = []Check{redisTransport, oneRedis}
	clusterChecks = []Check{redisTransport, redisCluster}
)

// redisServer is a server under examination. Its facts are those of INFO and CONFIG GET by their own names, what
// complete adds, and what was refused.
type redisServer struct {
	facts
	conn    redislock.Conn
	scratch string // a key of the doctor's own, with the hash tag of a lock but no key of one
	cluster bool   // the server is to be a master of a cluster
	layout  redislock.Layout
	kind    redislock.RedissonKind
}

// withRedis connects as the driver does. Where that fails, the lock's finding says why.
func withRedis(ctx context.Context, p Patient, examine func(redislock.Conn) []Finding) []Finding {
	if p.silent() {
		return nil
	}
	conn, err := redislock.Dial(ctx, p.driver)
	if err != nil {
		return nil
	}
	defer conn.Close()
	return examine(conn)
}

// oneRedis examines the server of a URL.
func oneRedis(ctx context.Context, p Patient) []Finding {
	return withRedis(ctx, p, func(conn redislock.Conn) []Finding {
		return examineRedis(ctx, &redisServer{conn: conn, scratch: scratchKey(p.params.Prefix, rand.Text())}, p.driver)
	})
}

// redisCluster runs the checks of a server on each master. One that has no slots to serve refuses writes.
func redisCluster(ctx context.Context, p Patient) []Finding {
	return withRedis(ctx, p, func(conn redislock.Conn) []Finding {
		parts := conn.(redislock.Clustered)
		masters := parts.Parts()
		findings := onEach(masters, func(address string) []Finding {
			own := *p.driver
			own.Scheme, own.Host = strings.TrimSuffix(own.Scheme, "+cluster"), address
			conn, err := redislock.Dial(ctx, &own)
			if err != nil {
				return noAnswer("connection", Error, err)
			}
			defer conn.Close()
			return examineRedis(ctx, &redisServer{conn: conn, cluster: true, scratch: keyAt(parts, p.params.Prefix, address)}, &own)
		})
		if p.driver.Query().Get("hf.layout") == string(redislock.Redisson) {
			findings = append(findings, redissonShards(ctx, parts, p.params.Prefix, masters)...)
		}
		return findings
	})
}

// keyAt returns a key of the doctor's own whose slot the master has, if one is found.
func keyAt(parts redislock.Clustered, prefix, address string) (key string) {
	for range 10_000 {
		if key = scratchKey(prefix, rand.Text()); parts.Part(key) == address {
			break
		}
	}
	return key
}

// braces escapes a name in a key, as package redislock does.
var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func scratchKey(prefix, id string) string {
	return redislock.DefaultPrefix + ":{" + braces.Replace(prefix+"holdfast-doctor/"+id) + "}:doctor"
}

// examineRedis asks one server for its facts, and judges them. If the server does not answer, that is the
// finding, and not that it does not show something.
func examineRedis(ctx context.Context, r *redisServer, u *url.URL) []Finding {
	r.facts = facts{"user": cmp.Or(u.User.Username(), "default")}
	r.set("hf.replicas", u.Query().Get("hf.replicas"))
	r.layout, r.kind = redislock.Layout(u.Query().Get("hf.layout")), redislock.RedissonKind(u.Query().Get("hf.redisson"))
	if r.cluster {
		r.facts["in cluster"] = "yes"
	}
	err := r.read(ctx)
	if err == nil && !noMaster(r.facts) {
		err = r.tryAccess(ctx)
	}
	if err != nil {
		return noAnswer("connection", Error, err)
	}
	findings := judge(r.facts, slices.Concat(redisRules, accessRules)...)
	if r.layout == redislock.Redisson && !noMaster(r.facts) {
		findings = append(findings, redissonData(ctx, r)...)
	}
	clocks, err := serverClock(ctx, func() (time.Time, error) { return r.clock(ctx) })
	if _, refused := errors.AsType[*redislock.ServerError](err); err != nil && !refused { // of a refusal the other findings tell
		clocks = noAnswer("server clock", Error, err)
	}
	return append(findings, clocks...)
}

// read reads what the server tells of its state, in one round trip. The error says that it has not answered.
func (r *redisServer) read(ctx context.Context) error {
	commands := []redislock.Command{{Args: []string{"INFO"}}}
	for _, name := range []string{"maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save", "min-replicas-to-write"} {
		commands = append(commands, redislock.Command{Args: []string{"CONFIG", "GET", name}})
	}
	for _, reply := range r.conn.Do(ctx, commands) {
		if _, refused := errors.AsType[*redislock.ServerError](reply.Err); reply.Err != nil && !refused {
			return reply.Err
		}
		for name, value := range fieldsOf(reply.Value) {
			r.facts[name] = value
		}
	}
	r.complete()
	return nil
}

// complete adds what follows from the fields of INFO.
func (r *redisServer) complete() {
	r.set("program", "Redis")
	r.set("version", r.facts["redis_version"])
	if valkey := r.facts["valkey_version"]; valkey != "" {
		r.facts["program"], r.facts["version"] = "Valkey", valkey
	}
	r.set("maxmemory-policy", r.facts["maxmemory_policy"]) // where CONFIG GET is not allowed
	if on, told := r.facts["aof_enabled"]; told {
		r.facts["appendonly"] = map[string]string{"1": "yes", "0": "no"}[on]
	}
	follow := 0
	for i := range int(r.number("connected_slaves")) {
		if strings.Contains(r.facts["slave"+strconv.Itoa(i)], "state=online") { // it has all data, and follows
			follow++
		}
	}
	r.facts["follow"] = strconv.Itoa(follow)
	r.facts["replicas"] = "replicas: " + r.facts["follow"]
	if least, told := r.facts["min-replicas-to-write"]; told {
		r.facts["replicas"] += "; min-replicas-to-write is " + least
	}
}

// fieldsOf reads the lines of a text such as "name:value", a map, or a list of names and values.
func fieldsOf(value any) facts {
	f := facts{}
	switch v := value.(type) {
	case string:
		for line := range strings.Lines(strings.TrimPrefix(v, "txt:")) { // so the newer protocol begins some texts
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				f[name] = value
			}
		}
	case map[string]any:
		for name, value := range v {
			f[name] = fmt.Sprint(value)
		}
	case []any:
		for i := 0; i+1 < len(v); i += 2 {
			f[fmt.Sprint(v[i])] = fmt.Sprint(v[i+1])
		}
	}
	return f
}

// ask runs a command.
func (r *redisServer) ask(ctx context.Context, args ...string) redislock.Reply {
	return r.conn.Do(ctx, []redislock.Command{{Args: args}})[0]
}

// clock reads the server's clock, as scripts see it, in microseconds.
func (r *redisServer) clock(ctx context.Context) (time.Time, error) {
	reply := r.ask(ctx, "EVAL", "local t = redis.call('TIME') return t[1] .. string.format('%06d', t[2])", "1", r.scratch)
	if reply.Err != nil {
		return time.Time{}, reply.Err
	}
	micros, err := strconv.ParseInt(fmt.Sprint(reply.Value), 10, 64)
	return time.UnixMicro(micros), err
}

// noAnswer is the finding if the server has not answered.
func noAnswer(check string, severity Severity, err error) []Finding {
	return []Finding{{
		check, severity, fmt.Sprintf("the server has not answered: %v", err), "locks are lost when they cannot be renewed",
		"check the server, and the network on the way to it",
	}}
}
