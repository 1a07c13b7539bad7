package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// flaw is a flaw of some versions of etcd, from its change logs and advisories up to 3.7.1, July
// 2026.
type flaw struct {
	severity Severity
	// sound has the first version without the flaw, for each minor version with the flaw. 0: there
	// is none, because that minor version gets no fixes any more.
	sound map[string]int
	risk  string
}

var flaws = []flaw{
	{Error, map[string]int{"3.4": 8, "3.5": 3},
		"members that were killed may come back without what they have acknowledged, so a lock " +
			"may have two holders (etcd issues 11651, 13766)"},
	{Error, map[string]int{"3.4": 31, "3.5": 13},
		"a leader that stood still ends leases that have been kept alive since, so a lock may " +
			"have two holders (etcd issue 15247)"},
	{Error, map[string]int{"3.4": 38, "3.5": 23, "3.6": 5},
		"a lease that has ended may be said to be kept alive, so a lock that was just handed " +
			"over may have two holders (etcd issue 20547)"},
	{Warning, map[string]int{"3.4": 44, "3.5": 30, "3.6": 11},
		"if etcd authenticates its users, each of them may end the leases of others or read and " +
			"write beyond what it was granted (CVE-2026-33413, CVE-2026-33343, CVE-2026-44283)"},
	{Warning, map[string]int{"3.4": 0, "3.5": 33, "3.6": 14, "3.7": 1},
		"silent connections can block a listener with TLS, and a user who may read one key may " +
			"watch those after it (GHSA-6vch-q96h-7gc3, GHSA-xg4h-6gfc-h4m8)"},
}

// flawOf returns the worst flaw of a version and the first sound version, or nil.
func flawOf(version string) (worst *flaw, sound string) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return nil, ""
	}
	minor := parts[0] + "." + parts[1]
	number, _, _ := strings.Cut(parts[2], "-") // a release candidate is not the release
	patch, err := strconv.Atoi(number)
	if err != nil {
		return nil, ""
	}
	for i, h := range flaws {
		first, ok := h.sound[minor]
		if !ok || first != 0 && patch >= first {
			continue
		}
		if worst == nil {
			worst = &flaws[i] // the worst come first
		}
		sound = fmt.Sprintf("%s.%d", minor, first)
		if first == 0 {
			sound = "a later minor version"
		}
	}
	return worst, sound
}

func (e *etcdPatient) versions(context.Context) []Finding {
	const check = "version"
	var all []string
	var worst Finding
	for _, m := range e.members {
		if m.err != nil {
			continue
		}
		all = append(all, m.status.Version)
		if h, sound := flawOf(m.status.Version); h != nil && (worst.Check == "" || h.severity == Error) {
			worst = Finding{
				Check: check, Severity: h.severity, Found: fmt.Sprintf("member %s is etcd %s", m.name, m.status.Version),
				Risk: h.risk, Remedy: "upgrade to " + sound + " or newer",
			}
		}
	}
	if worst.Check != "" {
		return []Finding{worst}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return nil // the quorum's finding says why
	}
	return good(check, "etcd %s", strings.Join(all, ", "))
}
