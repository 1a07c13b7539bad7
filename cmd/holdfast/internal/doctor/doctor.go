// Package doctor checks a store, and the host, for what would break a lock there.
//
// Some checks are for every store. Others are for one kind of store, by its URL scheme: see checks.
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

// Check checks one thing and returns its findings. There are none if another check reports why.
type Check func(context.Context, Patient) []Finding

// checks are the checks for each URL scheme. Those for every store are in Examine.
var checks = map[string][]Check{
	"etcd":       etcdChecks,
	"etcds":      etcdChecks,
	"file":       fileChecks,
	"mariadb":    mysqlChecks,
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
