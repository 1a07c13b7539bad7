package zksession_test

import (
	"maps"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// elected are steps after which A is at the leader that was elected last, and the one before does not know
// of that yet.
var elected = []string{
	"server 1 is elected with server 2",
	"A gives up its connection",
	"A connects to server 1",
}

// right are worlds in which nothing is wrong. All of each is explored.
func right() map[string]*setup {
	worlds := map[string]*setup{
		"renewals":      {budget: budget{attempts: 1, elections: 1, renewals: 2}},
		"two elections": {budget: budget{attempts: 1, elections: 2, connects: 1, renewals: 1}},
		"pings":         {budget: budget{attempts: 1, elections: 1, connects: 1, pings: 2}},
		"reads":         {budget: budget{attempts: 1, elections: 1, connects: 1, reads: 2}},
		"withdrawal":    {budget: budget{attempts: 1, elections: 1, cancels: 1, drops: 1, connects: 1, withdraws: 1}},
		"two attempts":  {budget: budget{attempts: 2, elections: 1, drops: 1, connects: 1, withdraws: 1}},
		// What A reads without a write before it never satisfies it.
		"withdrawal by reading": {hasty: true, prefix: elected, budget: budget{attempts: 1, elections: 1, drops: 2, connects: 2, withdraws: 1}},
		"B after A":             {budget: budget{attempts: 1, elections: 1, others: 1}},
		"A behind B":            {behind: true, budget: budget{attempts: 1, polls: 1, others: 1}},
	}
	if testserver.Long(false, true) {
		maps.Copy(worlds, map[string]*setup{
			"three elections":             {budget: budget{attempts: 1, elections: 3, connects: 2, renewals: 2}},
			"A behind B, renewed":         {behind: true, budget: budget{attempts: 1, polls: 1, others: 1, renewals: 1}},
			"A behind B, an election":     {behind: true, budget: budget{attempts: 1, elections: 1, polls: 1, others: 1}},
			"withdrawal, two connections": {budget: budget{attempts: 1, elections: 1, drops: 1, connects: 2, withdraws: 2}},
		})
	}
	return worlds
}

// broken is a world that breaks a promise.
type broken struct {
	promise string
	setup
}

// wrong are worlds of a driver that makes a mistake.
func wrong() map[string]*broken {
	return map[string]*broken{
		"trust counts from when an answer arrives": {"P1: ", setup{arrival: true, budget: budget{attempts: 1}}},
		"a claim counts from when A is told": {"P1: ", setup{
			claims: true, behind: true, budget: budget{attempts: 1, polls: 1, others: 1},
		}},
	}
}
