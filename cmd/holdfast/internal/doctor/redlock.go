package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/rueidisconn"
)

// redlockChecks are the checks of several Redis servers that vote.
var redlockChecks = []Check{redlockServers}

// redlockServers runs the checks of one Redis server on each of them. Each finding names its server.
func redlockServers(ctx context.Context, p Patient) []Finding {
	hosts := strings.Split(p.URL.Host, ",")
	query := p.URL.Query()
	durable := query.Get("hf.durable") == "yes"
	query.Del("hf.durable") // of the quorum, not of its servers
	query.Del("hf.maxttl")
	if query.Get("hf.layout") != string(redislock.Redisson) {
		query.Del("hf.layout") // waiters for a quorum poll in any layout
	}
	found := make([][]Finding, len(hosts))
	var all sync.WaitGroup
	for i, host := range hosts {
		one := *p.URL
		one.Scheme, one.Host, one.RawQuery = "redis", host, query.Encode()
		all.Go(func() { found[i] = redlockServer(ctx, Patient{URL: &one, Client: p.Client}, durable) })
	}
	all.Wait()
	var findings []Finding
	if len(hosts)%2 == 0 {
		findings = append(findings, Finding{
			Check: "nodes", Severity: Note, Found: fmt.Sprintf("%d servers vote", len(hosts)),
			Risk:   fmt.Sprintf("no more of them may fail than of %d", len(hosts)-1),
			Remedy: "let three or five vote",
		})
	}
	for i, host := range hosts {
		for _, f := range found[i] {
			if f.Check == "persistence" && f.Severity == Warning {
				f = forgetsVotes(f, durable)
			}
			f.Check += " of " + host
			findings = append(findings, f)
		}
	}
	return findings
}

// forgetsVotes says what it means that a server may forget locks, if it is one of several that vote.
func forgetsVotes(f Finding, durable bool) Finding {
	if durable {
		f.Severity = Error
		f.Risk = "the URL says hf.durable=yes, so the server counts at once after a restart, and two can have a lock that it has forgotten"
		f.Remedy = "set appendonly yes and appendfsync always, or leave hf.durable out"
		return f
	}
	f.Severity = Note
	f.Risk = "after a restart the server does not count until the longest TTL (hf.maxttl) is over"
	f.Remedy = "nothing need be done. With appendonly yes and appendfsync always on all servers hf.durable=yes spares that time"
	return f
}

// redlockServer examines one server.
func redlockServer(ctx context.Context, p Patient, durable bool) []Finding {
	_, u, err := storeurl.Take(p.URL)
	if err != nil {
		return nil // the lock's finding says why
	}
	conn, err := rueidisconn.Dial(u)
	if err != nil {
		return []Finding{{
			Check: "connection", Severity: Warning, Found: err.Error(),
			Risk:   "the others must be a majority: the next failure may be one too many",
			Remedy: "start the server, or repair the way to it",
		}}
	}
	defer conn.Close()
	var findings []Finding
	if !durable {
		findings = redlockAccess(ctx, conn, p.URL.User.Username())
	}
	for _, check := range redisChecks {
		findings = append(findings, check(ctx, p)...)
	}
	return findings
}

// memoryKey is the key by which clients know whether a server may have forgotten its votes.
const memoryKey = redislock.DefaultPrefix + ":memory"

// votes are the commands that a Redlock needs on each server beside those of one, unless the servers
// are durable. They change nothing.
var votes = []redislock.Command{
	{Args: []string{"INFO", "server"}},
	{Args: []string{"GET", memoryKey}},
	{Args: []string{"EVAL", "return 1", "1", memoryKey}},
}

// redlockAccess tries what a Redlock needs to know whether the server has forgotten its votes.
func redlockAccess(ctx context.Context, conn redislock.Conn, user string) []Finding {
	const check = "votes"
	var denied []string
	for i, reply := range conn.Do(ctx, votes) {
		refused, ok := errors.AsType[*redislock.ServerError](reply.Err)
		if ok && strings.HasPrefix(refused.Text, "NOPERM") {
			denied = append(denied, strings.Join(votes[i].Args[:2], " "))
		} else if reply.Err != nil && !ok {
			return connectionTrouble(check, reply.Err)
		}
	}
	user = cmp.Or(user, "default")
	if denied == nil {
		return good(check, "user %q may do what tells whether the server has forgotten its votes", user)
	}
	return []Finding{{
		Check: check, Severity: Error,
		Found: fmt.Sprintf("user %q was refused: %s", user, strings.Join(denied, ", ")),
		Risk:  "the server does not count, because nobody can tell whether it has forgotten its votes",
		Remedy: "run ACL SETUSER " + user + " ~" + redislock.DefaultPrefix + ":* +eval +get +info " +
			"on this server, beside what locks in one server need",
	}}
}
