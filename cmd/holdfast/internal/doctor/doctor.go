// Package doctor checks a store, and the host, for what would break a lock there. Some checks are for every
// store, others for one kind of store, by its URL scheme. A check of a store asks it for facts, and a table
// of rules judges them.
package doctor

import (
	"context"
	"errors"
	"net/url"
	"os"
	"slices"
	"sync"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/storeurl"
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

	params storeurl.Params // the client's parameters in URL, by Examine
	driver *url.URL        // URL without them, by Examine
}

// silent reports whether the server did not answer in time when the store was opened. It is not asked again.
func (p Patient) silent() bool {
	return errors.Is(p.Err, context.DeadlineExceeded) || errors.Is(p.Err, os.ErrDeadlineExceeded)
}

// Check checks one thing and returns its findings. There are none if another check reports why.
type Check func(context.Context, Patient) []Finding

// checks are the checks for each URL scheme. Those for every store are in Examine.
var checks = map[string][]Check{
	"cell": cellChecks, "cells": cellChecks, "etcd": etcdChecks, "etcds": etcdChecks, "zk": zooKeeperChecks, "zks": zooKeeperChecks,
	"redis": redisChecks, "rediss": redisChecks, "redis+unix": redisChecks, "redis+sentinel": redisChecks, "rediss+sentinel": redisChecks,
	"redis+cluster": clusterChecks, "rediss+cluster": clusterChecks, "redlock": redlockChecks,
	"postgres": postgresChecks, "postgresql": postgresChecks, "mysql": mysqlChecks, "mariadb": mysqlChecks,
	"sqlite": sqliteChecks, "file": fileChecks,
}

// Examine runs all checks.
func Examine(ctx context.Context, p Patient) (findings []Finding) {
	var err error
	if p.params, p.driver, err = storeurl.Take(p.URL); err == nil { // else the lock's finding says why
		for _, check := range checks[p.URL.Scheme] {
			findings = append(findings, check(ctx, p)...)
		}
	}
	return append(findings, lock(ctx, p)...)
}

// onEach examines several servers at the same time. Each finding names its server.
func onEach(hosts []string, examine func(host string) []Finding) (findings []Finding) {
	found := make([][]Finding, len(hosts))
	var all sync.WaitGroup
	for i, host := range hosts {
		all.Go(func() { found[i] = examine(host) })
	}
	all.Wait()
	for i, host := range hosts {
		for _, f := range found[i] {
			f.Check += " of " + host
			findings = append(findings, f)
		}
	}
	return findings
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
