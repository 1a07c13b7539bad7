package doctor

import (
	"os"
	"slices"
	"strconv"
	"time"
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
