package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/rueidisconn"
)

// sentinelChecks are the checks of a primary that sentinels name, and of the sentinels.
var sentinelChecks = []Check{redisTransport, redisSentinels, redisServerChecks}

// sentinelView is what one sentinel says.
type sentinelView struct {
	host     string
	err      error
	primary  map[string]string   // of SENTINEL MASTER
	replicas []map[string]string // of SENTINEL REPLICAS
	quorum   string              // of SENTINEL CKQUORUM: OK, or why not
}

// redisSentinels asks each sentinel for itself.
func redisSentinels(ctx context.Context, p Patient) []Finding {
	_, u, err := storeurl.Take(p.URL)
	if err != nil {
		return nil // the lock's finding says why
	}
	name, _, _ := strings.Cut(strings.Trim(u.Path, "/"), "/")
	hosts := strings.Split(u.Host, ",")
	views := make([]sentinelView, len(hosts))
	var asked sync.WaitGroup
	for i, host := range hosts {
		asked.Go(func() { views[i] = askSentinel(ctx, u, host, name) })
	}
	asked.Wait()
	return append(judgeSentinels(views), judgeReplicas(views)...)
}

// sentinelPort is that of sentinels if the URL names none.
const sentinelPort = "26379"

// askSentinel asks one sentinel. It gets the password of the servers if it wants one.
func askSentinel(ctx context.Context, u *url.URL, host, name string) sentinelView {
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	v := sentinelView{host: host}
	own := *u
	own.Scheme, own.Path, own.Host = strings.TrimSuffix(u.Scheme, "+sentinel"), "", host
	if _, _, err := net.SplitHostPort(host); err != nil {
		own.Host = net.JoinHostPort(strings.Trim(host, "[]"), sentinelPort)
	}
	own.User = nil
	conn, err := rueidisconn.Dial(&own)
	if refused, ok := errors.AsType[*redislock.ServerError](err); ok && refused.Code() == "NOAUTH" {
		own.User = u.User
		conn, err = rueidisconn.Dial(&own)
	}
	if err != nil {
		v.err = err
		return v
	}
	defer conn.Close()
	ask := func(command string) redislock.Reply {
		return conn.Do(ctx, []redislock.Command{{Args: []string{"SENTINEL", command, name}}})[0]
	}
	primary := ask("MASTER")
	if v.err = primary.Err; v.err != nil {
		return v
	}
	v.primary = fieldsOf(primary.Value)
	list, _ := ask("REPLICAS").Value.([]any)
	for _, item := range list {
		v.replicas = append(v.replicas, fieldsOf(item))
	}
	v.quorum = "OK"
	if err := ask("CKQUORUM").Err; err != nil {
		v.quorum = err.Error()
	}
	return v
}

// fieldsOf reads a list of names and values, or a map.
func fieldsOf(value any) map[string]string {
	fields := map[string]string{}
	switch v := value.(type) {
	case map[string]any:
		for name, value := range v {
			fields[name] = fmt.Sprint(value)
		}
	case []any:
		for i := 0; i+1 < len(v); i += 2 {
			fields[fmt.Sprint(v[i])] = fmt.Sprint(v[i+1])
		}
	}
	return fields
}

// judgeSentinels judges what the sentinels say of themselves and of the primary.
func judgeSentinels(views []sentinelView) []Finding {
	const check = "sentinels"
	f := Finding{
		Check: check, Severity: Warning,
		Risk:   "when the primary is gone nobody takes over, and no lock can be taken or renewed",
		Remedy: "run at least three sentinels on hosts of their own, and name them all in the URL; see SENTINEL CKQUORUM",
	}
	var silent, named, broken []string
	known := 0
	for _, v := range views {
		if v.err != nil {
			silent = append(silent, fmt.Sprintf("%s: %v", v.host, v.err))
			continue
		}
		named = append(named, net.JoinHostPort(v.primary["ip"], v.primary["port"]))
		others := 0
		_, _ = fmt.Sscan(v.primary["num-other-sentinels"], &others)
		known = max(known, others+1)
		if v.quorum != "OK" {
			broken = append(broken, v.host+": "+v.quorum)
		}
	}
	distinct := slices.Clone(named)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	switch {
	case len(named) == 0:
		f.Severity, f.Found = Error, "no sentinel names the primary: "+strings.Join(silent, "; ")
		f.Risk = "clients that lose their connections do not find the primary again"
	case len(distinct) > 1:
		f.Found = "the sentinels name different primaries: " + strings.Join(distinct, ", ")
		f.Risk = "a fail-over is under way, or the sentinels are cut off from each other: then two servers may grant the same locks"
		f.Remedy = "run doctor again in a minute; if it is still so, see the sentinels' logs, and set min-replicas-to-write"
	case len(broken) > 0:
		f.Found = "the sentinels cannot agree on a fail-over: " + strings.Join(broken, "; ")
	case len(silent) > 0:
		f.Found = fmt.Sprintf("%d of %d sentinels do not answer for the primary: %s", len(silent), len(views), strings.Join(silent, "; "))
	case known < 3:
		f.Found = fmt.Sprintf("%d sentinels watch the primary", known)
	case len(views) < 3:
		f.Severity, f.Found = Note, fmt.Sprintf("the URL names %d of %d sentinels", len(views), known)
		f.Risk = "while those are gone clients do not find the primary"
		f.Remedy = "name them all"
	default:
		return good(check, "%d sentinels answer, name %s as the primary, and can agree on a fail-over", len(views), distinct[0])
	}
	return []Finding{f}
}

// judgeReplicas judges the replicas as the sentinels see them.
func judgeReplicas(views []sentinelView) []Finding {
	const check = "replicas ready"
	i := slices.IndexFunc(views, func(v sentinelView) bool { return v.err == nil })
	if i < 0 {
		return nil // the sentinels' finding says why
	}
	var bad []string
	for _, r := range views[i].replicas {
		name := net.JoinHostPort(r["ip"], r["port"])
		switch {
		case strings.Contains(r["flags"], "down") || strings.Contains(r["flags"], "disconnected"):
			bad = append(bad, name+" is "+r["flags"])
		case r["master-link-status"] != "ok":
			bad = append(bad, name+" does not follow (master-link-status "+r["master-link-status"]+")")
		case r["slave-priority"] == "0":
			bad = append(bad, name+" may not take over (replica-priority 0)")
		}
	}
	f := Finding{
		Check: check, Severity: Warning,
		Risk:   "when the primary is gone nobody takes over, or one whose data are old: locks of the time before are forgotten",
		Remedy: "see the replicas' logs, and SENTINEL REPLICAS",
	}
	switch all := len(views[i].replicas); {
	case all == 0:
		f.Found = "the sentinels know no replica of the primary"
	case len(bad) > 0:
		f.Found = fmt.Sprintf("%d of %d replicas: %s", len(bad), all, strings.Join(bad, "; "))
	default:
		return good(check, "%d replicas follow the primary", all)
	}
	return []Finding{f}
}
