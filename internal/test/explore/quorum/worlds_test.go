package quorum_test

import (
	"maps"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// The rules of quorums without tokens, and with them.
var (
	plain  = vote.Rules{Nodes: nodes}
	tokens = vote.Rules{Nodes: nodes, Tokens: true}
)

// uneven is what attempts that failed have left: node 2 knows of higher tokens than the others.
var uneven = [nodes]driver.Token{0, 0, 2}

// halfRenewed are steps after which client 0 has renewed the votes of nodes 0 and 2, that of node 2 a tick
// before that of node 0, and node 2's clock has gained a tick since. Client 1 has the vote of node 1, to
// which a request of client 0 is still under way.
var halfRenewed = []string{
	"client 0 asks all nodes",
	"node 0 executes the request of client 0, and answers",
	"node 2 executes the request of client 0, and answers",
	"client 0 asks all nodes to renew",
	"node 2 executes the renewal of client 0, and answers",
	"a tick passes",
	"client 1 asks all nodes",
	"node 1 executes the request of client 1, and answers",
	"node 0 executes the renewal of client 0, and answers",
	"the clock of node 2 gains a tick",
}

// released are steps after which a client has held the name, with the token of node 1, and has released
// it.
var released = []string{
	"client 0 asks all nodes",
	"node 1 executes the request of client 0, and answers",
	"node 0 executes the request of client 0, and answers",
	"node 0 executes the token of client 0, and answers",
	"client 0 releases",
	"the withdrawal of owner 1 comes to node 0",
	"the withdrawal of owner 1 comes to node 1",
}

// right are worlds in which nothing is wrong. All of each is explored.
func right() map[string]*setup {
	worlds := map[string]*setup{
		"three clients":       {clients: 3, rules: plain, budget: budget{attempts: 1, losses: 1}},
		"late answers":        {clients: 2, rules: plain, strays: true, release: true, budget: budget{attempts: 1, late: 2, cancels: 1}},
		"losses":              {clients: 2, rules: plain, strays: true, release: true, budget: budget{attempts: 1, losses: 2}},
		"fast nodes":          {clients: 2, rules: plain, budget: budget{attempts: 1, gains: 3, backs: 1}},
		"slow clients":        {clients: 2, rules: plain, budget: budget{attempts: 1, losses: 1, misses: 2}},
		"renewals":            {clients: 2, rules: plain, budget: budget{attempts: 1, renewals: 1, gains: 1}},
		"renewals, losses":    {clients: 2, rules: plain, budget: budget{attempts: 1, renewals: 1, losses: 1}},
		"lost memory":         {clients: 2, rules: plain, forgets: true, budget: budget{attempts: 1, restarts: 1, gains: 1}},
		"twice lost":          {clients: 2, rules: plain, forgets: true, budget: budget{attempts: 1, restarts: 2}},
		"lost, three clients": {clients: 3, rules: plain, forgets: true, budget: budget{attempts: 1, restarts: 1}},
		"again":               {clients: 2, rules: plain, release: true, budget: budget{attempts: 2}},
		"restored votes": {
			clients: 2, rules: plain, forgets: true, prefix: halfRenewed, budget: budget{attempts: 1, renewals: 2, restarts: 1, gains: 1},
		},
		"tokens":            {clients: 2, rules: tokens, start: uneven, release: true, budget: budget{attempts: 1, losses: 1}},
		"tokens, one again": {clients: 1, rules: tokens, start: uneven, release: true, budget: budget{attempts: 2, losses: 1}},
		// Nodes that keep their memory give higher and higher tokens, however wrong their clocks are.
		"tokens, wild clocks": {
			clients: 2, rules: tokens, start: uneven, wild: true, budget: budget{attempts: 1, gains: 2},
		},
		// They forget a name that is idle, when their clocks are well beyond its last token.
		"tokens of idle names": {
			clients: 1, rules: tokens, clocks: true, skew: [nodes]int8{0, 4, 0}, idle: 3, wild: true, ticks: 7, release: true,
			prefix: released, budget: budget{attempts: 2, backs: 2},
		},
	}
	if testserver.Long(false, true) {
		maps.Copy(worlds, map[string]*setup{
			"again, losses": {clients: 2, rules: plain, release: true, budget: budget{attempts: 2, losses: 1}},
			"restored votes, a gain at any time": {
				clients: 2, rules: plain, forgets: true, prefix: halfRenewed[:len(halfRenewed)-2],
				budget: budget{attempts: 1, renewals: 2, restarts: 1, gains: 1},
			},
			"two renewals":          {clients: 2, rules: plain, budget: budget{attempts: 1, renewals: 2, gains: 1}},
			"lost memory, set back": {clients: 2, rules: plain, forgets: true, budget: budget{attempts: 1, restarts: 1, gains: 1, backs: 1}},
			"tokens, renewals":      {clients: 2, rules: tokens, start: uneven, release: true, budget: budget{attempts: 1, renewals: 1}},
			"restored in all":       {clients: 2, rules: plain, forgets: true, budget: budget{attempts: 1, renewals: 1, restarts: 1}},
		})
	}
	return worlds
}

// broken is a world that breaks a promise.
type broken struct {
	promise string
	setup
}

// wrong are worlds in which something is not as the promises need it.
func wrong() map[string]*broken {
	return map[string]*broken{
		"memory is lost without a delay": {"P1: ", setup{clients: 2, rules: plain, budget: budget{attempts: 1, restarts: 1}}},
		"the clock of a node jumps":      {"P1: ", setup{clients: 2, rules: plain, jumps: true, budget: budget{attempts: 1, gains: 2}}},
		"the clock of a client is slow":  {"P1: ", setup{clients: 2, rules: plain, jumps: true, budget: budget{attempts: 1, misses: 2}}},
		"tokens are counted, and memory is lost": {"P3: ", setup{
			clients: 1, rules: tokens, forgets: true, start: uneven, release: true, budget: budget{attempts: 2, restarts: 1},
		}},
		"a name is forgotten, and a clock is set back by as much": {"P3: ", setup{
			clients: 1, rules: tokens, clocks: true, skew: [nodes]int8{0, 4, 0}, idle: 2, wild: true, ticks: 8, release: true,
			prefix: released, budget: budget{attempts: 2, backs: 2},
		}},
	}
}

// large is more than can be explored whole: random ways go through it.
func large() map[string]*setup {
	return map[string]*setup{
		"everything, nodes that lose their memory": {clients: 3, rules: plain, forgets: true, strays: true, release: true, budget: budget{
			attempts: 2, renewals: 4, cancels: 1, losses: 3, late: 3, restarts: 3, gains: 2, backs: 1,
		}},
		"everything, nodes that keep it": {clients: 3, rules: tokens, start: uneven, strays: true, release: true, budget: budget{
			attempts: 2, renewals: 3, cancels: 1, losses: 3, late: 3, misses: 2,
		}},
	}
}
