// Package doctor looks at a store, and at the host, and says what would break a
// lock there.
//
// What is true of every store is checked here; a store adds its own checks for
// its URL scheme: see checks.
package doctor

import (
	"context"
	"net/url"

	"github.com/holdfastlock/holdfast"
)

// Severity says how bad a finding is.
type Severity string

// The severities. Only an Error makes the doctor fail.
const (
	OK      Severity = "ok"
	Note    Severity = "note"    // worth knowing
	Warning Severity = "warning" // locks work, but something may go wrong one day
	Error   Severity = "error"   // locks do not work, or do not exclude
)

// Finding is one thing that was looked at.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`            // what is so
	Risk     string   `json:"risk,omitempty"`   // what can go wrong
	Remedy   string   `json:"remedy,omitempty"` // what to do
}

// Patient is what is looked at.
type Patient struct {
	URL    *url.URL
	Client *holdfast.Client // nil: the store could not be opened
	Err    error            // why
}

// Check looks at one thing and returns what it finds, at least one finding.
type Check func(context.Context, Patient) []Finding

// checks are the checks for each URL scheme, beside those for all.
var checks = map[string][]Check{
	"etcd":       etcdChecks,
	"etcds":      etcdChecks,
	"file":       fileChecks,
	"mysql":      mysqlChecks,
	"postgres":   postgresChecks,
	"postgresql": postgresChecks,
	"redis":      redisChecks,
	"rediss":     redisChecks,
	"redis+unix": redisChecks,
	"sqlite":     sqliteChecks,
}

// Examine runs all checks.
func Examine(ctx context.Context, p Patient) []Finding {
	findings := clock(ctx, p)
	for _, check := range checks[p.URL.Scheme] {
		findings = append(findings, check(ctx, p)...)
	}
	return append(findings, roundTrip(ctx, p)...)
}

// Healthy reports whether there is no error among the findings.
func Healthy(findings []Finding) bool {
	for _, f := range findings {
		if f.Severity == Error {
			return false
		}
	}
	return true
}
