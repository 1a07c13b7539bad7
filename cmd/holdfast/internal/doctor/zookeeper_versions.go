package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// zooKeeperFlaw is a flaw of some versions of ZooKeeper, from the releases in which its history has the
// fix, and from its security page of March 2026.
type zooKeeperFlaw struct {
	severity Severity
	// from and sound have, for each minor version with the flaw, the first version with it (0 if from
	// does not name it) and the first without. 0: there is none.
	from, sound map[string]int
	risk        string
}

// zooKeeperFlaws has the worst first.
var zooKeeperFlaws = []zooKeeperFlaw{
	{Error, nil, map[string]int{"3.5": 9, "3.6": 3},
		"a server that joins again may keep what was never acknowledged, or lose what was, so a lock may have two holders (ZOOKEEPER-3911)"},
	{Error, nil, map[string]int{"3.5": 0, "3.6": 0, "3.7": 0, "3.8": 5, "3.9": 2},
		"a server that joins again may lose what was acknowledged, so a lock may have two holders (ZOOKEEPER-4785)"},
	{Error, map[string]int{"3.9": 3}, map[string]int{"3.9": 4},
		"a server that was behind may lead with a gap in its history, so a lock may have two holders (ZOOKEEPER-4925)"},
	{Warning, nil, map[string]int{"3.5": 0, "3.6": 0, "3.7": 0, "3.8": 0, "3.9": 3},
		"a server whose leader went away may keep nodes of sessions that have ended, so it says that a free lock is held (ZOOKEEPER-4712)"},
	{Warning, nil, map[string]int{"3.5": 0, "3.6": 0, "3.7": 0, "3.8": 6, "3.9": 5},
		"whoever controls reverse names of addresses may stand in for a server or a client with a certificate (CVE-2026-24281)"},
}

// zooKeeperFlawOf returns the worst flaw of a version and the first version without any, or nil.
func zooKeeperFlawOf(version string) (worst *zooKeeperFlaw, sound string) {
	parts := strings.Split(version, ".")
	if len(parts) < 3 {
		return nil, ""
	}
	minor := parts[0] + "." + parts[1]
	patch, err := strconv.Atoi(parts[2])
	if err != nil {
		return nil, ""
	}
	newest := 0
	for i, f := range zooKeeperFlaws {
		first, ok := f.sound[minor]
		if !ok || patch < f.from[minor] || first != 0 && patch >= first {
			continue
		}
		if worst == nil {
			worst = &zooKeeperFlaws[i]
		}
		if first == 0 {
			newest = -1
		} else if newest >= 0 {
			newest = max(newest, first)
		}
	}
	switch {
	case worst == nil:
		return nil, ""
	case newest < 0:
		return worst, "a later minor version"
	}
	return worst, fmt.Sprintf("%s.%d", minor, newest)
}

func (z *zooKeeperPatient) versions() []Finding {
	const check = "version"
	var all []string
	var worst Finding
	for _, s := range z.servers {
		if s.Version == "" {
			continue
		}
		all = append(all, s.Version)
		if f, sound := zooKeeperFlawOf(s.Version); f != nil && (worst.Check == "" || f.severity == Error && worst.Severity != Error) {
			worst = Finding{
				Check: check, Severity: f.severity, Found: fmt.Sprintf("server %s is ZooKeeper %s", s.Addr, s.Version),
				Risk: f.risk, Remedy: "upgrade to " + sound + " or newer",
			}
		}
	}
	slices.Sort(all)
	switch all = slices.Compact(all); {
	case worst.Check != "":
		return []Finding{worst}
	case len(all) == 0:
		return []Finding{{
			Check: check, Severity: Note, Found: "not seen: the servers' version", Risk: "some versions lose what they have acknowledged",
			Remedy: "let the servers answer srvr: 4lw.commands.whitelist",
		}}
	}
	return good(check, "ZooKeeper %s", strings.Join(all, ", "))
}
