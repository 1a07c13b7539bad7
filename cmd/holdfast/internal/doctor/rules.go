package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// facts are what a store told of itself, and what the doctor has tried there, by name. What was not told
// is missing.
type facts map[string]string

// set sets a fact, unless it is empty.
func (f facts) set(name, value string) {
	if value != "" {
		f[name] = value
	}
}

// add adds to a list.
func (f facts) add(name, value string) {
	if f[name] != "" {
		value = f[name] + ", " + value
	}
	f[name] = value
}

// number returns a fact that is a number; 0: it is missing, or none.
func (f facts) number(name string) float64 {
	n, _ := strconv.ParseFloat(f[name], 64)
	return n
}

// rule is one line of a store's table: if the facts are so, this is the finding of the check. In the texts
// ${name} stands for a fact.
type rule struct {
	check               string
	severity            Severity
	when                func(facts) bool // nil: always
	found, risk, remedy string
}

// judge returns for each check of a table the finding of its first rule that holds. A rule without a text
// says that there is none.
func judge(f facts, rules ...rule) (findings []Finding) {
	judged := map[string]bool{}
	fill := func(text string) string { return os.Expand(text, func(name string) string { return f[name] }) }
	for _, r := range rules {
		if judged[r.check] || r.when != nil && !r.when(f) {
			continue
		}
		judged[r.check] = true
		if r.found != "" {
			findings = append(findings, Finding{r.check, r.severity, fill(r.found), fill(r.risk), fill(r.remedy)})
		}
	}
	return findings
}

// good is the rule that nothing is wrong, if some conditions hold.
func good(check, found string, when ...func(facts) bool) rule {
	return rule{check: check, severity: OK, when: all(when...), found: found}
}

// elsewhere is the rule of a check that has nothing to say, because another one tells.
func elsewhere(check string, when func(facts) bool) rule { return rule{check: check, when: when} }

// unseen is the rule of a check for which one of some facts is missing.
func unseen(check, what, risk string, names ...string) rule {
	return rule{
		check, Note, missing(names...), "not seen: the server does not show this user " + what, risk,
		"ask the server's administrator, or let this user see it (in Redis by INFO and CONFIG GET) and run doctor again",
	}
}

// missing holds if one of some facts was not told.
func missing(names ...string) func(facts) bool {
	return func(f facts) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, told := f[name]; return !told })
	}
}

// has holds if a fact was told, and is not empty.
func has(name string) func(facts) bool { return func(f facts) bool { return f[name] != "" } }

// is holds if a fact has one of some values.
func is(name string, values ...string) func(facts) bool {
	return func(f facts) bool { return slices.Contains(values, f[name]) }
}

// all holds if each of some conditions does.
func all(when ...func(facts) bool) func(facts) bool {
	return func(f facts) bool {
		return !slices.ContainsFunc(when, func(holds func(facts) bool) bool { return !holds(f) })
	}
}

// less holds if one fact is a smaller number than another.
func less(a, b string) func(facts) bool {
	return func(f facts) bool { return f.number(a) < f.number(b) }
}

// longer holds if one fact is a longer duration than another.
func longer(a, b string) func(facts) bool {
	return func(f facts) bool {
		long, _ := time.ParseDuration(f[a])
		short, _ := time.ParseDuration(f[b])
		return long > short
	}
}

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

// onThisHost reports whether a host, with or without a port, or the path of a socket, is certainly this one.
func onThisHost(host string) bool {
	return host == "" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, ":") && strings.Count(host, ":") == 1 || storeurl.Loopback(host)
}

// transport checks that what goes to the hosts of a URL is encrypted, or stays on this host. It returns
// nothing if the store was not opened, because then nothing has been sent.
func transport(p Patient, encrypted bool, remedy string) []Finding {
	if p.Client == nil {
		return nil
	}
	f := facts{}
	hosts := cmp.Or(p.URL.Host, p.URL.Query().Get("host")) // PostgreSQL's URLs may have a parameter instead
	for host := range strings.SplitSeq(hosts, ",") {
		if !onThisHost(host) {
			f.add("hosts", host)
		}
	}
	if encrypted {
		f["encrypted"] = "yes"
	}
	return judge(f,
		good("transport", "the store is on this host, so nothing crosses a network", missing("hosts")),
		good("transport", "the connection to ${hosts} is encrypted", has("encrypted")),
		rule{
			"transport", Warning, nil, "the connection to ${hosts}, on another host, is not encrypted",
			"anyone on the network can read the password, and take or break locks", remedy,
		})
}

// transportOf is transport for stores whose URL says by its scheme whether connections are encrypted.
func transportOf(scheme, remedy string) Check {
	return func(_ context.Context, p Patient) []Finding {
		return transport(p, strings.HasPrefix(p.URL.Scheme, scheme), remedy)
	}
}
