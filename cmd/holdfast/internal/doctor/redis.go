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
// master of a cluster, redlockChecks those of each server that votes.
var (
	redisChecks   = []Check{redisTransport, oneRedis}
	clusterChecks = []Check{redisTransport, redisCluster}
	redlockChecks = []Check{redlockServers}
)

// redisServer is a server under examination. Its facts are those of INFO and CONFIG GET by their own names, what
// complete adds, and what was refused.
type redisServer struct {
	facts
	conn    redislock.Conn
	scratch string // a key of the doctor's own, with the hash tag of a lock but no key of one
	cluster bool   // the server is to be a master of a cluster
	node    bool   // it is one of several that vote
	votes   bool   // and it may forget its votes
	waits   bool   // when it may have forgotten locks, it grants none until they have ended
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
		return onEach(parts.Parts(), func(address string) []Finding {
			own := *p.driver
			own.Scheme, own.Host = strings.TrimSuffix(own.Scheme, "+cluster"), address
			conn, err := redislock.Dial(ctx, &own)
			if err != nil {
				return noAnswer("connection", Error, err)
			}
			defer conn.Close()
			return examineRedis(ctx, &redisServer{conn: conn, cluster: true, scratch: keyAt(parts, p.params.Prefix, address)}, &own)
		})
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
	if !r.node && r.layout != redislock.Redisson {
		r.waits = u.Query().Get("hf.forget") != "go"
		r.facts["waits"] = map[bool]string{true: "yes", false: "no"}[r.waits]
	}
	err := r.read(ctx)
	if err == nil && !noMaster(r.facts) {
		err = r.tryAccess(ctx)
	}
	if err != nil {
		return noAnswer("connection", Error, err)
	}
	findings := judge(r.facts, slices.Concat(redisRules, accessRules)...)
	for i, f := range findings {
		if r.waits && f.Check == "persistence" && f.Severity != OK {
			findings[i] = Finding{
				f.Check, Note, f.Found, "a restart may forget locks: their holders have lost, and nothing is granted until the longest TTL (hf.maxttl) is over",
				"nothing need be done. With appendonly yes and appendfsync always holders keep their locks",
			}
		}
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

// redlockServers runs the checks of one Redis server on each of them.
func redlockServers(ctx context.Context, p Patient) []Finding {
	query := p.driver.Query()
	durable := query.Get("hf.durable") == "yes"
	query.Del("hf.durable") // of the quorum, not of its servers
	query.Del("hf.maxttl")
	if query.Get("hf.layout") != string(redislock.Redisson) {
		query.Del("hf.layout") // waiters for a quorum poll in any layout
	}
	return onEach(strings.Split(p.URL.Host, ","), func(host string) []Finding {
		own := *p.driver
		own.Scheme, own.Host, own.RawQuery = "redis", host, query.Encode()
		return redlockServer(ctx, Patient{URL: &own, Client: p.Client, driver: &own, params: p.params}, durable)
	})
}

// forgetsVotes says what it means that a server may forget locks, if it is one of several that vote (P1).
func forgetsVotes(f Finding, durable bool) Finding {
	if durable {
		return Finding{
			f.Check, Error, f.Found,
			"the URL says hf.durable=yes, so the server counts at once after a restart, and two can have a lock that it has forgotten",
			"set appendonly yes and appendfsync always, or leave hf.durable out",
		}
	}
	return Finding{
		f.Check, Note, f.Found, "after a restart the server does not count until the longest TTL (hf.maxttl) is over",
		"nothing need be done. With appendonly yes and appendfsync always on all servers hf.durable=yes spares that time",
	}
}

// redlockServer examines one server.
func redlockServer(ctx context.Context, p Patient, durable bool) []Finding {
	conn, err := redislock.Dial(ctx, p.driver)
	if err != nil {
		return judge(facts{"why": err.Error()}, rule{
			"connection", Warning, nil, "${why}", "the others must be a majority: the next failure may be one too many",
			"start the server, or repair the way to it",
		})
	}
	defer conn.Close()
	findings := redisTransport(ctx, p)
	server := &redisServer{conn: conn, scratch: scratchKey(p.params.Prefix, rand.Text()), node: true, votes: !durable}
	for _, f := range examineRedis(ctx, server, p.driver) {
		if f.Check == "persistence" && f.Severity == Warning {
			f = forgetsVotes(f, durable)
		}
		findings = append(findings, f)
	}
	return findings
}

// redisRules judge one server: what it would forget (P1, P3), and whether it lets locks be taken at all.
var redisRules = []rule{
	unseen("version", "its version", "old versions cannot run the scripts", "version"),
	{
		"version", Error, before("version", release{5, 0, 0}), "${program} ${version}",
		"its scripts may not write after they have read the clock: no lock can be taken", "use version 5 or later",
	},
	good("version", "${program} ${version}"),

	{
		"role", Error, is("redis_mode", "sentinel"), "this is a Sentinel, not a server with data", noLock,
		"use redis+sentinel://, with the name by which the sentinels know the master",
	},
	{
		"role", Error, is("role", "slave"), "this is a replica of ${master_host}:${master_port}",
		"it takes no writes, and if it did its master would overwrite them", "name the master's address",
	},
	{
		"role", Error, all(is("cluster_enabled", "1"), missing("in cluster")), "this is a node of a Redis Cluster",
		"locks whose names belong to another node cannot be taken", "use redis+cluster://",
	},
	unseen("role", "its role", "a replica takes no locks", "role"),
	good("role", "this is a master"),

	elsewhere("replicas", noMaster),
	unseen("replicas", "its replicas", "a replica that takes over may not know the locks that are held", "role"),
	{
		"replicas", Error, less("follow", "min-replicas-to-write"), "${replicas}",
		"the server refuses all writes: no lock can be taken, renewed or released",
		"connect more replicas, or lower min-replicas-to-write",
	},
	{
		"replicas", Error, less("follow", "hf.replicas"), "${replicas}; hf.replicas is ${hf.replicas}",
		"too few can acknowledge a lock: none can be taken or renewed", "connect more replicas, or lower hf.replicas",
	},
	good("replicas", "no replica follows, so none can take over with old data", is("follow", "0")),
	good("replicas", "${replicas}: a primary that has lost its replicas stops granting", is("waits", "yes"), less("nothing", "min-replicas-to-write")),
	{
		"replicas", Warning, all(is("waits", "yes"), less("hf.replicas", "follow")), "${replicas}",
		"if a replica takes over while this server lives on, cut off with some clients, both grant: two holders",
		"set min-replicas-to-write 1 and a short min-replicas-max-lag, such as 5; or ask by hf.replicas in the store URL for as " +
			"many replicas as there are; or guard what must not break by fencing tokens",
	},
	{
		"replicas", Warning, is("hf.replicas", "", "0"), "${replicas}, and locks do not wait until they have them",
		"if a replica takes over, locks of the last moments before are forgotten and can be taken a second time; " +
			"if its clock is behind, tokens are lower than before",
		"ask by hf.replicas in the store URL for as many replicas as there are; " +
			"or guard what must not break by fencing tokens; or let no replica take over by itself",
	},
	{
		"replicas", Warning, less("hf.replicas", "follow"),
		"${replicas}; hf.replicas is ${hf.replicas}: the others need not have acknowledged a lock",
		"if one of the others takes over, locks of the last moments before are forgotten and can be taken a second time",
		"let only the most advanced replica take over; or ask for ${follow} by hf.replicas, and then no lock can be " +
			"taken while one is down; or guard what must not break by fencing tokens",
	},
	good("replicas", "${replicas}; each of them must acknowledge a lock (hf.replicas is ${hf.replicas}), so any may take over; "+
		"while one is down, or when one has taken over, none can be taken until as many follow again"),

	good("forgetting", "if this server may have forgotten locks, it grants none until they have ended", is("waits", "yes")),
	{
		"forgetting", Note, is("waits", "no"), "hf.forget is go", "after a restart, a flush or a fail-over, locks that are held can be taken a second time",
		"leave hf.forget out, unless the locks only save work",
	},

	unseen("eviction", "maxmemory-policy", "with any policy but noeviction, held locks are deleted when memory is short",
		"maxmemory-policy", "maxmemory"),
	good("eviction", "nothing is evicted: maxmemory-policy is noeviction", is("maxmemory-policy", "noeviction")),
	{
		"eviction", Note, is("maxmemory", "0"), "maxmemory-policy is ${maxmemory-policy}, but maxmemory is not set, so nothing is evicted",
		"once maxmemory is set, held locks may be deleted", noEviction,
	},
	{
		"eviction", Error, nil, "maxmemory-policy is ${maxmemory-policy}, and maxmemory is set; keys evicted so far: ${evicted_keys}",
		"when memory is short the server deletes locks that are held, and others take them", noEviction,
	},

	unseen("persistence", "its persistence", "after a restart, locks may be forgotten and taken a second time", "appendonly"),
	good("persistence", "each write is on disk before it is answered (appendonly yes, appendfsync always)",
		is("appendonly", "yes"), is("appendfsync", "always")),
	{
		"persistence", Note, func(f facts) bool {
			return missing(map[string]string{"yes": "appendfsync", "no": "save"}[f["appendonly"]])(f)
		},
		"appendonly is ${appendonly}; not seen what reaches the disk, and when, because CONFIG GET is not allowed",
		"after a crash or a restart locks may be forgotten" + again, durably,
	},
	{
		"persistence", Warning, is("appendonly", "yes"),
		"writes are appended to a file that is synced later (appendfsync ${appendfsync})",
		"a crash of the host forgets locks of the last moments, with everysec of a second or two" + again, durably,
	},
	{
		"persistence", Warning, is("save", ""), "nothing is written to disk",
		"a restart forgets all locks that are held" + again, durably,
	},
	{
		"persistence", Warning, nil, "there are only snapshots (save ${save})",
		"a crash forgets locks taken since the last one, which may be hours old" + again, durably,
	},
}

// accessRules judge what was refused.
var accessRules = []rule{
	elsewhere("access", noMaster),
	{
		"access", Error, has("denied"), `user "${user}" was refused: ${denied} (${why})`,
		"locks cannot be taken, or are not handed over, or not listed",
		"if it is a permission that is missing, run ACL SETUSER ${user} ${acl}",
	},
	elsewhere("access", has("trouble")),
	good("access", `user "${user}" may do all that locks need`),
	elsewhere("writes", missing("trouble")),
	{
		"writes", Error, nil, "the server refuses writes: ${trouble}", "no lock can be taken, renewed or given back",
		"see the server's log; if it is full (OOM), raise maxmemory or delete other data; permissions have nothing to do with it",
	},
}

const (
	noLock     = "no lock can be taken here"
	noEviction = "set maxmemory-policy noeviction; use a server of its own for locks if the other data are a cache"
	again      = ", and the next client takes them a second time"
	durably    = "set appendonly yes and appendfsync always, at the price of speed; or guard what must not break by fencing tokens"
)

// noMaster holds if the server takes no writes, as the finding of its role says.
func noMaster(f facts) bool { return f["role"] == "slave" || f["redis_mode"] == "sentinel" }
