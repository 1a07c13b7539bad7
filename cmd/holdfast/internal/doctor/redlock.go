package doctor

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/redislock/rueidisconn"
)

// redlockChecks are the checks of several Redis servers that vote.
var redlockChecks = []Check{redlockServers}

// redlockServers runs the checks of one Redis server on each of them. Each finding names its server.
func redlockServers(ctx context.Context, p Patient) []Finding {
	hosts := strings.Split(p.URL.Host, ",")
	found := make([][]Finding, len(hosts))
	var all sync.WaitGroup
	for i, host := range hosts {
		one := *p.URL
		one.Scheme, one.Host = "redis", host
		all.Go(func() { found[i] = redlockServer(ctx, Patient{URL: &one, Client: p.Client}) })
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
			f.Check += " of " + host
			findings = append(findings, f)
		}
	}
	return findings
}

func redlockServer(ctx context.Context, p Patient) []Finding {
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
	conn.Close()
	var findings []Finding
	for _, check := range redisChecks {
		findings = append(findings, check(ctx, p)...)
	}
	return findings
}
