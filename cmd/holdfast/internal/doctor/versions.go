package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// release is a version of a server.
type release [3]int

func parseRelease(text string) (v release, ok bool) {
	n, _ := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2])
	return v, n == len(v)
}

// before holds if a version is known and older than another one.
func before(name string, oldest release) func(facts) bool {
	return func(f facts) bool {
		v, ok := parseRelease(f[name])
		return ok && slices.Compare(v[:], oldest[:]) < 0
	}
}

// flaws are flaws by which versions of a store let two clients hold one lock (P1).
type flaws struct {
	// sound has the first patch of each flawed minor version that has none of them. 0: there is none,
	// because that minor version gets no fixes any more.
	sound  map[string]int
	except []string // versions before that one that have none of them either
	risk   string
}

// of reports whether a version is flawed, and from which version on none is.
func (h *flaws) of(version string) (flawed bool, sound string) {
	v, ok := parseRelease(version)
	minor := fmt.Sprintf("%d.%d", v[0], v[1])
	patch, is := h.sound[minor]
	if !ok || !is || patch != 0 && v[2] >= patch || slices.Contains(h.except, version) {
		return false, ""
	}
	if patch == 0 {
		return true, "a later minor version"
	}
	return true, fmt.Sprintf("%s.%d", minor, patch)
}

// addVersion adds the version of one server to the facts: see versionRules.
func (f facts) addVersion(h *flaws, server, version string) {
	if version == "" {
		return
	}
	if !slices.Contains(strings.Split(f["versions"], ", "), version) {
		f.add("versions", version)
	}
	if flawed, sound := h.of(version); flawed && f["flawed"] == "" {
		f["flawed"], f["flaw"], f["sound"] = server+" has version "+version, h.risk, sound
	}
}

// versionRules are the rules for the versions of several servers.
var versionRules = []rule{
	elsewhere("version", missing("answers")), // the finding on the quorum says why
	unseen("version", "the servers' versions", "some versions lose what they have acknowledged", "versions"),
	{"version", Error, has("flawed"), "${flawed}", "${flaw}", "upgrade to ${sound} or newer"},
	good("version", "the servers have version ${versions}"),
}
