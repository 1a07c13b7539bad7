package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/celllock"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// cellChecks are the checks of a cell. They share what its members tell.
var cellChecks = []Check{cellMembers}

// cellPatient is a cell under examination.
type cellPatient struct {
	secure  bool
	members []string // of the URL
	said    []cell.MemberStatus
	ttl     time.Duration // of locks that have none of their own
}

func cellMembers(ctx context.Context, p Patient) []Finding {
	params, u, err := storeurl.Take(p.URL)
	if err != nil {
		return nil // the lock's finding says why
	}
	config, _, err := celllock.Config(u)
	if err != nil {
		return nil // as above
	}
	client, err := cell.New(config)
	if err != nil {
		return nil // as above
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	c := &cellPatient{
		secure: p.URL.Scheme == "cells", members: config.Members, said: client.Statuses(ctx), ttl: cmp.Or(params.TTL, holdfast.DefaultTTL),
	}
	findings := append(c.transport(), c.quorum()...)
	if len(c.answers()) == 0 {
		return findings // nothing else was seen
	}
	for _, check := range []func() []Finding{c.sameCell, c.list, c.lag, c.versions, c.terms, c.space, c.disks} {
		findings = append(findings, check()...)
	}
	return append(findings, good("store clock", "sessions of a cell run by a clock that cannot be set: "+
		"it does not matter what its wall clock shows")...)
}

// answers are the members that answered.
func (c *cellPatient) answers() (all []cell.MemberStatus) {
	for _, s := range c.said {
		if s.Status != nil {
			all = append(all, s)
		}
	}
	return all
}

// transport checks that connections beyond this host are encrypted.
func (c *cellPatient) transport() []Finding {
	if c.secure {
		return good("transport", "connections are encrypted")
	}
	for _, address := range c.members {
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return []Finding{{
				Check: "transport", Severity: Warning, Found: "connections to " + address + " are not encrypted",
				Risk:   "anyone on the network can read the secret of a session, and release its locks",
				Remedy: "give the members certificates (holdfast serve --tls-cert), and use cells://",
			}}
		}
	}
	return good("transport", "connections stay on this host")
}

const noMajority = "without a majority no lock is taken, renewed or released"

func (c *cellPatient) quorum() []Finding {
	const check = "quorum"
	var down, headless []string
	for _, s := range c.said {
		switch {
		case s.Err != nil:
			down = append(down, s.Address)
		case s.Status.Leader == "":
			headless = append(headless, s.Address)
		}
	}
	switch n := len(c.said); {
	case len(down) == n:
		return []Finding{{
			Check: check, Severity: Error, Found: fmt.Sprintf("no member answers: %v", c.said[0].Err), Risk: noMajority,
			Remedy: "start the members: holdfast serve",
		}}
	case len(headless) > 0:
		return []Finding{{
			Check: check, Severity: Error, Found: strings.Join(headless, ", ") + " know no leader", Risk: noMajority,
			Remedy: "start the missing members, and check the network between them",
		}}
	case len(down) > 0:
		return []Finding{{
			Check: check, Severity: Warning,
			Found: fmt.Sprintf("%d of the %d members of the URL do not answer: %s", len(down), n, strings.Join(down, ", ")),
			Risk:  fmt.Sprintf("a cell of %d bears the loss of %d", n, (n-1)/2), Remedy: "start them, or replace them: holdfast cell remove, add",
		}}
	case len(c.answers()[0].Status.Members) == 1:
		return []Finding{{
			Check: check, Severity: Note, Found: "the cell has one member",
			Risk: "when it is down no lock is taken, renewed or released", Remedy: "a cell of three bears the loss of one",
		}}
	}
	return good(check, "all %d members of the URL answer, and know a leader", len(c.said))
}

// sameCell checks that the URL names the members of one cell.
func (c *cellPatient) sameCell() []Finding {
	all := c.answers()
	for _, s := range all[1:] {
		if s.Status.Cell != all[0].Status.Cell {
			return []Finding{{
				Check: "one cell", Severity: Error, Found: all[0].Address + " and " + s.Address + " are members of different cells",
				Risk: "each cell has locks of its own, so a lock may have several holders", Remedy: "name the members of one cell only",
			}}
		}
	}
	return nil
}

// list compares the URL with the list of members that the cell has.
func (c *cellPatient) list() []Finding {
	const check = "members"
	var learning []string
	counts := 0
	for _, m := range c.answers()[0].Status.Members {
		if m.Learner {
			learning = append(learning, cmp.Or(m.Name, m.PeerUrl))
		} else {
			counts++
		}
	}
	switch {
	case len(learning) > 0:
		return []Finding{{
			Check: check, Severity: Warning, Found: "members that do not count yet: " + strings.Join(learning, ", "),
			Risk: "the cell bears no more losses than without them", Remedy: "start them with holdfast serve --join, or remove them",
		}}
	case counts%2 == 0:
		return []Finding{{
			Check: check, Severity: Note, Found: fmt.Sprintf("the cell has %d members", counts),
			Risk: fmt.Sprintf("it bears the loss of %d, as one of %d does", (counts-1)/2, counts-1), Remedy: "have one, three or five",
		}}
	case counts > len(c.said):
		return []Finding{{
			Check: check, Severity: Warning, Found: fmt.Sprintf("the cell has %d members, and the URL names %d", counts, len(c.said)),
			Risk: "a client that can reach none of the named ones loses its locks, though the cell works", Remedy: "name all members in the URL",
		}}
	}
	return good(check, "the URL names all %d", counts)
}

// behind is by how many revisions a member may be behind another while both work.
const behind = 10_000

func (c *cellPatient) lag() []Finding {
	all := c.answers()
	order := func(a, b cell.MemberStatus) int { return cmp.Compare(a.Status.Revision, b.Status.Revision) }
	last, first := slices.MinFunc(all, order), slices.MaxFunc(all, order)
	if lag := first.Status.Revision - last.Status.Revision; lag > behind {
		return []Finding{{
			Check: "lag", Severity: Warning, Found: fmt.Sprintf("%s is %d changes behind %s", last.Address, lag, first.Address),
			Risk: "its clients wait until it has caught up", Remedy: "look at its disk and its network",
		}}
	}
	return nil
}

func (c *cellPatient) versions() []Finding {
	var versions []string
	for _, s := range c.answers() {
		versions = append(versions, s.Status.Version)
	}
	slices.Sort(versions)
	if versions = slices.Compact(versions); len(versions) > 1 {
		return []Finding{{
			Check: "version", Severity: Note, Found: "the members have the versions " + strings.Join(versions, " and "),
			Risk: "neighbouring minor versions work together, others may not", Remedy: "bring all to the newest",
		}}
	}
	return good("version", "all members have the version %s", cmp.Or(versions[0], "of a build without one"))
}

// terms compares the TTL of locks with what the cell can do.
func (c *cellPatient) terms() []Finding {
	shortest := c.answers()[0].Status.ShortestTtl.AsDuration()
	if c.ttl < shortest {
		return []Finding{{
			Check: "TTL", Severity: Error, Found: fmt.Sprintf("the TTL is %v, and the cell's shortest %v", c.ttl, shortest),
			Risk: "no lock is granted", Remedy: "choose a longer TTL, or a shorter --election for the members",
		}}
	}
	return good("TTL", "%v; the cell's shortest is %v", c.ttl, shortest)
}

// space checks that members let clients have something new.
func (c *cellPatient) space() (findings []Finding) {
	for _, s := range c.answers() {
		if s.Status.Shortage != "" {
			findings = append(findings, Finding{
				Check: "space", Severity: Error, Found: s.Status.Shortage,
				Risk: "nobody gets a new session, lock or file there", Remedy: "make room on its disk",
			})
		}
	}
	if findings != nil {
		return findings
	}
	return good("space", "the members have enough")
}

// slowLog is how long a sync of the log may take on average.
const slowLog = 20 * time.Millisecond

func (c *cellPatient) disks() []Finding {
	var slowest time.Duration
	at := ""
	for _, s := range c.answers() {
		if d := s.Status.LogSync.AsDuration(); d >= slowest {
			slowest, at = d, s.Address
		}
	}
	if slowest > slowLog {
		return []Finding{{
			Check: "disk", Severity: Warning, Found: fmt.Sprintf("%s needs %v to sync its log, on average", at, slowest.Round(time.Millisecond)),
			Risk: "every acquire and release takes as long, and the cell may elect another leader again and again", Remedy: "give the members disks that sync quickly",
		}}
	}
	return good("disk", "a sync of the log takes up to %v, on average", slowest.Round(10*time.Microsecond))
}
