package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"

	"github.com/holdfastlock/holdfast/redislock"
)

// redlockChecks are the checks of several Redis servers that vote.
var redlockChecks = []Check{redlockServers}

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
	if !durable {
		findings = append(findings, votes(ctx, conn, p.driver)...)
	}
	for _, f := range examineRedis(ctx, &redisServer{conn: conn, scratch: scratchKey(p.params.Prefix, rand.Text())}, p.driver) {
		if f.Check == "persistence" && f.Severity == Warning {
			f = forgetsVotes(f, durable)
		}
		findings = append(findings, f)
	}
	return findings
}

// memoryKey is the key by which clients know whether a server may have forgotten its votes. Beside it they
// compare the server's run_id, which a restart changes (P1).
const memoryKey = redislock.DefaultPrefix + ":memory"

// neededByVotes are the commands that a Redlock needs on each server beside those of one, unless the servers are
// durable. They change nothing.
var neededByVotes = [][]string{{"INFO", "server"}, {"GET", memoryKey}, {"EVAL", "return 1", "1", memoryKey}}

// votes tries what a Redlock needs to know whether the server has forgotten its votes.
func votes(ctx context.Context, conn redislock.Conn, u *url.URL) []Finding {
	f := facts{"user": "default"}
	f.set("user", u.User.Username())
	for _, words := range neededByVotes {
		reply := conn.Do(ctx, []redislock.Command{{Args: words}})[0]
		refused, ok := errors.AsType[*redislock.ServerError](reply.Err)
		if ok && strings.HasPrefix(refused.Text, "NOPERM") {
			f.add("denied", strings.Join(words[:2], " "))
		} else if reply.Err != nil && !ok {
			return noAnswer("votes", Error, reply.Err)
		}
	}
	return judge(f,
		rule{
			"votes", Error, has("denied"), `user "${user}" was refused: ${denied}`,
			"the server does not count, because nobody can tell whether it has forgotten its votes",
			"run ACL SETUSER ${user} ~" + redislock.DefaultPrefix + ":* +eval +get +info on this server, beside what locks in one server need",
		},
		good("votes", `user "${user}" may do what tells whether the server has forgotten its votes`))
}
