package doctor

import (
	"cmp"
	"context"
	"strconv"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/celllock"
)

// cellChecks are the checks of a cell.
var cellChecks = []Check{transportOf("cells", "give the members certificates (holdfast serve --tls-cert), and use cells://"), cellMembers}

// cellRules judge whether the cell answers, and what its members tell.
var cellRules = []rule{
	{"quorum", Error, missing("answers"), "no member answers: ${why}", noMajority, "start the members: holdfast serve"},
	{
		"quorum", Error, has("headless"), "${headless} know no leader", noMajority,
		"start the missing members, and check the network between them",
	},
	{
		"quorum", Warning, has("down"), "of the ${named} members of the URL these do not answer: ${down}",
		"a cell of ${named} bears the loss of ${spare}", "start them, or replace them: holdfast cell remove, add",
	},
	{
		"quorum", Note, is("members", "1"), "the cell has one member", "when it is down no lock is taken, renewed or released",
		"a cell of three bears the loss of one",
	},
	good("quorum", "all ${named} members of the URL answer, and know a leader"),
	elsewhere("one cell", missing("strangers")),
	{
		"one cell", Error, nil, "members of different cells: ${strangers}", "each cell has locks of its own, so a lock may have several holders",
		"name the members of one cell only",
	},
	{
		"members", Warning, less("named", "members"),
		"the cell has ${members} members, and the URL names ${named}",
		"a client that can reach none of the named ones loses its locks, though the cell works", "name all members in the URL",
	},
	good("members", "the URL names all ${members}", has("answers")),
	{
		"TTL", Error, longer("shortest", "ttl"), "the TTL is ${ttl}, and the cell's shortest ${shortest}",
		"no lock is granted", "choose a longer TTL, or a shorter --election for the members",
	},
	good("TTL", "${ttl}; the cell's shortest is ${shortest}", has("answers")),
	{"space", Error, has("shortage"), "${shortage}", "nobody gets a new session, lock or file there", "make room on its disk"},
	good("space", "the members have enough", has("answers")),
}

func cellMembers(ctx context.Context, p Patient) []Finding {
	client, _, err := celllock.Cell(p.driver)
	if err != nil {
		return nil // the lock's finding says why
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	f := learnCell(client.Statuses(ctx))
	f["ttl"] = cmp.Or(p.params.TTL, holdfast.DefaultTTL).String()
	return judge(f, cellRules...)
}

// learnCell is what the members of a URL have said.
func learnCell(said []cell.MemberStatus) facts {
	f := facts{"named": strconv.Itoa(len(said)), "spare": strconv.Itoa((len(said) - 1) / 2)}
	var first *cell.MemberStatus
	for _, s := range said {
		if s.Error != "" {
			f.add("down", s.Address)
			f["why"] = s.Error
			continue
		}
		f.add("answers", s.Address)
		if first == nil {
			first = &s
		}
		if s.Leader == "" {
			f.add("headless", s.Address)
		}
		if s.Cell != first.Cell {
			f["strangers"] = first.Address + ", " + s.Address
		}
		if s.Shortage != "" {
			f.add("shortage", s.Shortage)
		}
	}
	if first == nil {
		return f
	}
	counts := 0
	for _, m := range first.Members {
		if !m.Learner {
			counts++
		}
	}
	f["members"] = strconv.Itoa(counts)
	f["shortest"] = first.ShortestTtl.AsDuration().String()
	return f
}
