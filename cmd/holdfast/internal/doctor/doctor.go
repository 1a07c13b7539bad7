// Package doctor checks a store, and the host, for what would break a lock there.
//
// Some checks are for every store. Others are for one kind of store, by its URL scheme: see checks.
package doctor

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/holdfastlock/holdfast"
)

// Severity says how bad a finding is.
type Severity string

// The severities, from the best to the worst.
const (
	OK      Severity = "ok"
	Note    Severity = "note"    // worth knowing
	Warning Severity = "warning" // locks work, but something may go wrong one day
	Error   Severity = "error"   // locks do not work, or do not exclude
)

// Finding is the result of a check, or one of its results.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`            // what was found
	Risk     string   `json:"risk,omitempty"`   // what can go wrong
	Remedy   string   `json:"remedy,omitempty"` // what to do
}

// Patient is the store that is checked.
type Patient struct {
	URL    *url.URL
	Client *holdfast.Client // nil: the store could not be opened
	Err    error            // why
}

// silent reports whether the server did not answer in time when the store was opened. It is not asked again.
func (p Patient) silent() bool { return p.Client == nil && errors.Is(p.Err, context.DeadlineExceeded) }

// Check checks one thing and returns its findings. There are none if another check reports why.
type Check func(context.Context, Patient) []Finding

// checks are the checks for each URL scheme. Those for every store are in Examine.
var checks = map[string][]Check{
	"cell":            cellChecks,
	"cells":           cellChecks,
	"etcd":            etcdChecks,
	"etcds":           etcdChecks,
	"file":            fileChecks,
	"mariadb":         mysqlChecks,
	"mysql":           mysqlChecks,
	"postgres":        postgresChecks,
	"postgresql":      postgresChecks,
	"redis":           redisChecks,
	"redis+cluster":   clusterChecks,
	"redis+sentinel":  sentinelChecks,
	"rediss":          redisChecks,
	"rediss+cluster":  clusterChecks,
	"rediss+sentinel": sentinelChecks,
	"redis+unix":      redisChecks,
	"redlock":         redlockChecks,
	"sqlite":          sqliteChecks,
	"zk":              zooKeeperChecks,
	"zks":             zooKeeperChecks,
}

// Examine runs all checks.
func Examine(ctx context.Context, p Patient) []Finding {
	findings := clock(ctx, p)
	for _, check := range checks[p.URL.Scheme] {
		findings = append(findings, check(ctx, p)...)
	}
	return append(findings, roundTrip(ctx, p)...)
}

// Worst returns the worst severity among the findings.
func Worst(findings []Finding) Severity {
	order := []Severity{OK, Note, Warning, Error}
	worst := 0
	for _, f := range findings {
		worst = max(worst, slices.Index(order, f.Severity))
	}
	return order[worst]
}
