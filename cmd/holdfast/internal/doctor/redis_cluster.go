package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/rueidisconn"
)

// clusterChecks are the checks of a Redis Cluster: of all of it, and of each master.
var clusterChecks = []Check{redisTransport, redisClusterChecks}

// clusterSlots is how many hash slots a cluster has.
const clusterSlots = 16384

func redisClusterChecks(ctx context.Context, p Patient) []Finding {
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
	parts := conn.(redislock.Partitioned)
	findings := redisClusterState(ctx, conn, parts.Parts())
	masters := parts.Parts()
	if layout := u.Query().Get("hf.layout"); layout == string(redislock.Redisson) {
		findings = append(findings, shardsOfRedisson(ctx, conn, params.Prefix, masters)...)
	} else {
		findings = append(findings, shardedChannels(ctx, conn, params.Prefix, masters)...)
	}
	each := make([][]Finding, len(masters))
	var examined sync.WaitGroup
	for i, address := range masters {
		examined.Go(func() { each[i] = examineMaster(ctx, u, params.Prefix, address, parts) })
	}
	examined.Wait()
	return append(findings, together(masters, each)...)
}

// examineMaster runs the checks of a server on one master.
func examineMaster(ctx context.Context, u *url.URL, prefix, address string, parts redislock.Partitioned) []Finding {
	own := *u
	own.Scheme, own.Host = strings.TrimSuffix(u.Scheme, "+cluster"), address
	conn, err := rueidisconn.Dial(&own)
	if err != nil {
		return connectionTrouble("connection", err)
	}
	defer conn.Close()
	r, err := newRedisServer(ctx, conn, &own, prefix)
	if err != nil {
		return connectionTrouble("connection", err)
	}
	r.cluster = true
	r.scratch = keyAt(parts, prefix, address)
	return r.examine(ctx)
}

// keyAt returns a key of the doctor's own whose slot the master has, if one is found.
func keyAt(parts redislock.Partitioned, prefix, address string) (key string) {
	for range 10_000 {
		if key = scratchKey(prefix, rand.Text()); parts.Part(key) == address {
			break
		}
	}
	return key
}

// shardedChannels subscribes to a channel of each master, as waiters do, and publishes on it.
func shardedChannels(ctx context.Context, conn redislock.Conn, prefix string, masters []string) []Finding {
	const check = "channels"
	ctx, cancel := context.WithTimeout(ctx, messageWithin)
	defer cancel()
	sharded := conn.(redislock.Sharded)
	id := rand.Text()
	channel := func(tag string) string { return redislock.DefaultPrefix + ":wake:" + id + "{" + tag + "}" }
	without := make([]string, len(masters))
	var asked sync.WaitGroup
	for i, address := range masters {
		asked.Go(func() {
			received := make(chan struct{}, 1)
			key := keyAt(conn.(redislock.Partitioned), prefix, address)
			sharded.Join(key, channel, func(message string) {
				select {
				case received <- struct{}{}:
				default:
				}
			})
			select {
			case <-received: // it is subscribed, or has given up
			case <-ctx.Done():
			}
			publish := []string{"EVAL", callScript, "1", key, "SPUBLISH", channel(sharded.Tag(key)), "x"}
			reply := conn.Do(ctx, []redislock.Command{{Args: publish, Key: key}})[0]
			if n, _ := reply.Value.(int64); n == 0 {
				without[i] = address
			}
		})
	}
	asked.Wait()
	without = slices.DeleteFunc(without, func(address string) bool { return address == "" })
	if len(without) == 0 {
		return good(check, "of a grant only the name's master hears, on %d masters", len(masters))
	}
	return []Finding{{
		Check: check, Severity: Note,
		Found:  "no sharded channels on " + strings.Join(without, ", "),
		Risk:   "all servers of the cluster hear of each grant to a waiter, which costs them time, and waiters nothing else",
		Remedy: "use Redis 7 or Valkey, and allow the user +ssubscribe +spublish",
	}}
}

// together makes one finding of those that the masters have of one check: the worst, with what was found
// on each master where it was.
func together(masters []string, each [][]Finding) []Finding {
	var all []Finding
	at := map[string][]string{} // by check: the masters on which it found the worst
	for i, findings := range each {
		for _, f := range findings {
			j := slices.IndexFunc(all, func(g Finding) bool { return g.Check == f.Check })
			switch {
			case j < 0:
				all = append(all, f)
				at[f.Check] = []string{masters[i]}
			case Worst([]Finding{all[j], f}) != all[j].Severity:
				all[j] = f
				at[f.Check] = []string{masters[i]}
			case all[j].Severity == f.Severity && !slices.Contains(at[f.Check], masters[i]):
				at[f.Check] = append(at[f.Check], masters[i])
			}
		}
	}
	for j := range all {
		where := at[all[j].Check]
		if len(where) == len(masters) {
			all[j].Found = fmt.Sprintf("on all %d masters, for example %s: %s", len(masters), where[0], all[j].Found)
		} else {
			all[j].Found = fmt.Sprintf("on %s: %s", strings.Join(where, ", "), all[j].Found)
		}
	}
	return all
}

// redisClusterState asks each master whether it serves, and one of them about all nodes.
func redisClusterState(ctx context.Context, conn redislock.Conn, masters []string) []Finding {
	commands := make([]redislock.Command, len(masters))
	for i, address := range masters {
		commands[i] = redislock.Command{Args: []string{"CLUSTER", "INFO"}, Part: address}
	}
	replies := conn.Do(ctx, commands)
	states := make([]map[string]string, len(masters))
	for i, r := range replies {
		text, _ := verbatim(r.Value)
		states[i] = map[string]string{}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				states[i][name] = value
			}
		}
		if r.Err != nil {
			states[i]["error"] = r.Err.Error()
		}
	}
	findings := []Finding{judgeClusterState(masters, states)}
	nodes := conn.Do(ctx, []redislock.Command{{Args: []string{"CLUSTER", "NODES"}}})[0]
	text, ok := verbatim(nodes.Value)
	if !ok {
		return append(findings, notVisible("cluster nodes", "CLUSTER NODES", "a node that fails may be the last that has its locks")...)
	}
	return append(findings, judgeClusterNodes(text)...)
}

// verbatim returns a text, which the newer protocol begins with its format.
func verbatim(value any) (string, bool) {
	text, ok := value.(string)
	return strings.TrimPrefix(text, "txt:"), ok
}

// judgeClusterState judges the replies to CLUSTER INFO.
func judgeClusterState(masters []string, states []map[string]string) Finding {
	f := Finding{
		Check: "cluster", Severity: Error,
		Risk:   "locks whose names belong to those slots, or all locks, cannot be taken or renewed",
		Remedy: "see CLUSTER INFO and CLUSTER NODES; bring the failed masters back, or let replicas take over; redis-cli --cluster fix",
	}
	var bad []string
	for i, state := range states {
		number := func(field string) int { n, _ := strconv.Atoi(state[field]); return n }
		switch {
		case state["error"] != "":
			bad = append(bad, masters[i]+": "+state["error"])
		case state["cluster_state"] != "ok":
			bad = append(bad, fmt.Sprintf("%s: cluster_state is %s, slots covered: %d of %d", masters[i], state["cluster_state"], number("cluster_slots_ok"), clusterSlots))
		case number("cluster_slots_assigned") < clusterSlots || number("cluster_slots_ok") < number("cluster_slots_assigned"):
			bad = append(bad, fmt.Sprintf("%s: of %d slots %d are assigned, and %d served", masters[i], clusterSlots, number("cluster_slots_assigned"), number("cluster_slots_ok")))
		}
	}
	if bad != nil {
		f.Found = strings.Join(bad, "; ")
		return f
	}
	return good("cluster", "cluster_state is ok on %d masters, and all %d slots are served", len(masters), clusterSlots)[0]
}

// judgeClusterNodes judges the reply to CLUSTER NODES: a line for each node, "ID ADDRESS FLAGS MASTER PING
// PONG EPOCH LINK SLOTS…".
func judgeClusterNodes(text string) []Finding {
	const check = "cluster nodes"
	var failing, moving []string
	replicas := map[string]int{}
	masters := map[string]string{} // with slots: the address, by id
	n := 0
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		n++
		address, _, _ := strings.Cut(f[1], "@")
		flags := strings.Split(f[2], ",")
		down := slices.Contains(flags, "fail") || slices.Contains(flags, "fail?") || slices.Contains(flags, "noaddr") || f[7] != "connected"
		switch {
		case down && len(f) == 8 && slices.Contains(flags, "master"):
			failing = append(failing, fmt.Sprintf("%s (%s, without slots)", cmp.Or(address, f[0]), f[2]))
		case down:
			failing = append(failing, fmt.Sprintf("%s (%s, link %s)", cmp.Or(address, f[0]), f[2], f[7]))
		case slices.Contains(flags, "slave"):
			replicas[f[3]]++
		}
		if slices.Contains(flags, "master") && len(f) > 8 {
			masters[f[0]] = address
			for _, slot := range f[8:] {
				if strings.HasPrefix(slot, "[") {
					moving = append(moving, slot)
				}
			}
		}
	}
	var alone []string
	for id, address := range masters {
		if replicas[id] == 0 {
			alone = append(alone, address)
		}
	}
	slices.Sort(alone)
	f := Finding{Check: check, Severity: Warning}
	switch {
	case failing != nil:
		f.Found = fmt.Sprintf("%d of %d nodes do not serve: %s", len(failing), n, strings.Join(failing, "; "))
		f.Risk = "if a master is among them, its locks are closed until a replica has taken over, and then the last ones may be forgotten"
		f.Remedy = "bring them back, or remove them with CLUSTER FORGET"
	case alone != nil:
		f.Found = "masters without a replica that serves: " + strings.Join(alone, ", ")
		f.Risk = "when one is gone, nobody takes over: locks whose names it has, or all, are closed until it is back"
		f.Remedy = "give each master a replica; set cluster-require-full-coverage no, so that the others serve on"
	case moving != nil:
		f.Severity, f.Found = Note, fmt.Sprintf("%d slots are being moved", len(moving))
		f.Risk = "locks whose names have these slots wait until the move is over"
		f.Remedy = "finish the resharding: redis-cli --cluster fix"
	default:
		return good(check, "%d nodes serve, and each master has a replica", n)
	}
	return []Finding{f}
}
