//go:build linux

package main

import (
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestUsage: wrong usage is refused before any I/O, in one line that names what is right (P10), without a password.
func TestUsage(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		says string
		args []string
	}{
		{`unknown command "rum"; did you mean run?`, []string{"rum"}},
		{"the command to run is missing", []string{"run", "x"}},
		{"there is no -- before the command", []string{"run", "x", "true"}},
		{"empty path element", []string{"leader", "a//b"}},
		{"unknown flag: --frobnicate", []string{"run", "--frobnicate", "x", "--", "true"}},
		{"a duration looks like 500ms, 30s", []string{"run", "-w", "10", "x", "--", "true"}},
		{"only one of them", []string{"run", "-n", "-w", "1s", "x", "--", "true"}},
		{"give both", []string{"run", "--permits", "1", "x", "--", "true"}},
		{"--max-hold is -1s: it must be positive", []string{"run", "--max-hold", "-1s", "x", "--", "true"}},
		{"LockDelay is 25h", []string{"run", "--lock-delay", "25h", "x", "--", "true"}},
		{"it must be less than 19.4s", []string{"run", "--grace", "19.5s", "x", "--", "true"}},
		{"--output is \"yaml\"", []string{"ls", "-o", "yaml"}},
		{"at most 1", []string{"ls", "a", "b"}},
		{"known are postgres, mysql, sqlite", []string{"schema", "--dialect", "oracle"}},
		{"--tables", []string{"schema", "--dialect", "mysql", "--tables", "a;b"}},
		{"fewer than three nodes", []string{"--store", "redlock://a,b", "ls"}},
		{`no store has the URL scheme "nosuch"`, []string{"--store", "nosuch://user:s3cr3t@host", "ls"}},
		{"cannot be parsed", []string{"--store", "redis://user:s3cr3t%@host", "ls"}},
		{"unknown URL parameter", []string{"--store", "file:///x?hf.frob=1", "ls"}},
		{"more than a directory", []string{"--store", "file://user:s3cr3t@x/y", "ls"}},
		{"exclude nobody", []string{"--store", "mem://x", "run", "x", "--", "true"}},
		{`unknown command "statsu"; did you mean status?`, []string{"cell", "statsu"}},
		{`--ticks is 0: at least 1 is needed`, []string{"demo", "cron", "--ticks", "0"}},
		{"--token is 0: no hold has such a token", []string{"break", "x", "--token", "0"}},
		{`--slots is "x": a whole number is needed`, []string{"run", "--slots", "x", "x", "--", "true"}},
		{`--token is "9223372036854775808": a whole number is needed, at most`, []string{"break", "x", "--token", "9223372036854775808"}},
		{"name a store by its URL", []string{"ls", "--store", ""}},
		{"unknown flag: --fallback", []string{"ls", "--fallback", "file:///x"}},
		{"-w is 0s: it must be positive", []string{"ls", "-w", "0s"}},
		{"give both", []string{"run", "--fallback-after", "1s", "x", "--", "true"}},
		{"holdfast: --fallback: store URL has no scheme", []string{"run", "--fallback", "bogus", "x", "--", "true"}},
		{"holdfast: --fallback: unknown URL parameter", []string{"run", "--fallback", "file:///x?hf.frob=1", "x", "--", "true"}},
		{"hf.prefix and hf.ttl belong in", []string{"run", "--fallback", "file:///x?hf.prefix=a", "x", "--", "true"}},
		{"the second store is the first", []string{"run", "--fallback", "file://" + w.locks, "x", "--", "true"}},
	} {
		p := w.run(64, c.args...)
		p.expectErr(c.says)
		text := p.err.String()
		if strings.Count(text, "\n") > 2 || p.out.String() != "" || strings.Contains(text, "strconv") || strings.Contains(text, "s3cr3t") {
			t.Errorf("%v wrote\n%s%s", c.args, p.out.String(), text)
		}
	}
	w.run(0, "run", "--grace", "19.3s", "x", "--", "true")
}

// TestFullOutput: an output that cannot be written, as on a full disk, is a failure on this host, and no
// wrong usage.
func TestFullOutput(t *testing.T) {
	w := newWorld(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	testserver.Must(t, err)
	defer full.Close()
	defer w.hold("job")()
	for _, args := range [][]string{
		{"ls"}, {"ls", "-o", "json"}, {"show", "job"}, {"doctor"}, {"version"}, {"schema", "--dialect", "sqlite"}, {"leader", "job", "-o", "json"},
	} {
		p := w.command(args...)
		p.cmd.Stdout = full
		p.start().ends(70)
		p.expectErr("no space left on device")
	}
}

// TestForeignDirectory: a directory that is in use for something else is refused as a store that does not work, not
// as wrong usage, and is not changed.
func TestForeignDirectory(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(w.locks, "people.lock")
	testserver.Must(t, os.Mkdir(w.locks, 0o700), os.WriteFile(file, []byte("not a lock\n"), 0o600))
	for _, args := range [][]string{{"ls"}, {"break", "x", "--token", "1"}, {"run", "x", "--", "touch", w.path("ran")}} {
		w.run(69, args...).expectErr("name an empty directory")
	}
	if text, err := os.ReadFile(file); string(text) != "not a lock\n" {
		t.Errorf("data loss: %q, %v", text, err)
	}
	w.absent("ran")
}

// TestEscaping: names and notes that change the direction of the text, clear the screen, end the line or are
// invisible are shown escaped to people, and exact to programs.
func TestEscaping(t *testing.T) {
	const name, note = "a/\u202egnp.exe\u200b\\/é日", "\x1b[2J\x1b]0;owned\x07\r\n\u202eetoN\u2066\u009b31m <b>&"
	w := newWorld(t)
	defer w.hold(name, "--note", note)()
	for _, text := range []string{
		w.run(0, "ls").out.String(), w.run(0, "show", name).out.String(), w.run(75, "run", "-n", name, "--", "true").err.String(),
	} {
		if strings.ContainsAny(text, "\x1b\a\r\u202e\u200b\u2066\u009b") || !strings.Contains(text, `a/\u202egnp.exe\u200b`) || !strings.Contains(text, `\x1b[2J`) {
			t.Errorf("it is not shown what is there:\n%q", text)
		}
	}
	var info struct {
		Name    string
		Holders []struct{ Note string }
	}
	err := json.Unmarshal([]byte(w.run(0, "ls", "-o", "json").out.String()), &info)
	if err != nil || info.Name != name || info.Holders[0].Note != note {
		t.Errorf("JSON is not exact: %+q, %v", info, err)
	}
}

// TestLsAndShow: what operators see, as people and as programs do.
func TestLsAndShow(t *testing.T) {
	w := newWorld(t)
	w.run(0, "ls").expectErr("no locks are in use")
	if p := w.run(0, "ls", "-o", "json"); p.out.String()+p.err.String() != "" {
		t.Errorf("an empty store: %q, %q", p.out.String(), p.err.String())
	}
	defer w.hold("a/1")()
	defer w.hold("a/2", "--shared")()
	defer w.hold("a/2", "--shared")()
	defer w.hold("b", "--slots", "5", "--permits", "2", "--note", "two of them")()
	waiter := w.start("run", "--note", "patient", "a/1", "--", "true")
	w.awaitQueue("a/1", 1)

	table := w.run(0, "ls").out.String()
	lines := strings.Split(strings.TrimSpace(table), "\n")
	if len(lines) != 4 || strings.Join(strings.Fields(lines[0]), " ") != "NAME HELD HOLDER TOKEN FOR UNLESS RENEWED WAITING" {
		t.Fatalf("the table:\n%s", table)
	}
	for i, words := range [][]string{{"a/1", "exclusive"}, {"a/2", "shared ×2"}, {"b", "2 of 5", "two of them"}} {
		for _, word := range words {
			if !strings.Contains(lines[i+1], word) {
				t.Errorf("%q is not in %q", word, lines[i+1])
			}
		}
	}
	if !strings.HasSuffix(lines[1], " 1") || !strings.HasSuffix(lines[2], " 0") {
		t.Errorf("WAITING is wrong:\n%s", table)
	}
	if p := w.run(0, "ls", "a/"); strings.Count(p.out.String(), "\n") != 3 {
		t.Errorf("ls a/:\n%s", p.out.String())
	}
	objects := w.run(0, "ls", "-o", "json").out.String()
	for _, want := range []string{
		`{"name":"a/1","mode":"exclusive","holders":[{"mode":"exclusive","token":`, `"waiters":[{"mode":"exclusive","note":"patient","waiting_seconds":`,
		`{"name":"a/2","mode":"shared","holders":[{"mode":"shared",`, `{"name":"b","mode":"slot","slots":5,"holders":[{"mode":"slot","permits":2,`,
	} {
		if !strings.Contains(objects, want) {
			t.Errorf("%s is not in\n%s", want, objects)
		}
	}
	if strings.Contains(objects, "owner") {
		t.Error("an owner is shown, who could be released by it")
	}
	show := w.run(0, "show", "a/1")
	for _, text := range []string{"a/1: exclusive", "HOLDER", "WAITER", "patient"} {
		show.expectOut(text)
	}
	waiter.signal(syscall.SIGTERM)
	waiter.ends(128 + 15)
	prefixed := "file://" + w.locks + "?hf.prefix=a%2F"
	w.run(0, "--store", prefixed, "show", "1").expectOut("1: exclusive")
	w.run(75, "--store", prefixed, "run", "-n", "1", "--", "true")
	w.run(0, "--store", prefixed, "run", "new", "--", "sh", "-c", "holdfast show a/new | grep exclusive")
}

// TestStoreTTL: hf.ttl of the store's URL is the TTL of commands that have no --ttl, and the default grace fits it.
func TestStoreTTL(t *testing.T) {
	w := newWorldOf(t, "file://"+t.TempDir()+"?hf.ttl=6s")
	for ttl, flags := range map[float64][]string{6: nil, 20: {"--ttl", "20s"}} {
		var shown struct {
			Holders []struct {
				Expires float64 `json:"expires_seconds"`
			}
		}
		p := w.run(0, append(append([]string{"run"}, flags...), "x", "--", "holdfast", "show", "x", "-o", "json")...)
		if err := json.Unmarshal([]byte(p.out.String()), &shown); err != nil || len(shown.Holders) != 1 {
			t.Fatalf("%+v, %v", shown, err)
		}
		if s := shown.Holders[0].Expires; s <= ttl-6 || s > ttl {
			t.Errorf("the lock ends in %v s, not %v", s, ttl)
		}
	}
	w.run(64, "run", "--grace", "5s", "x", "--", "true").expectErr("6s")
}

// TestSchema: the statements create the tables that the store then uses.
func TestSchema(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "locks.db")
	db, err := sql.Open("sqlite", file)
	testserver.Must(t, err)
	defer db.Close()
	text := w.run(0, "schema", "--dialect", "sqlite", "--tables", "app", "optimistic", "txlock", "fence", "locks").out.String()
	for range 2 { // again: it must not mind
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"app_meta", "holdfast_txlock", "holdfast_fence"} {
		if _, err := db.Exec("SELECT * FROM " + table); err != nil {
			t.Error(err)
		}
	}
	w.run(0, "--store", "sqlite://"+file+"?hf.tables=app", "run", "a", "--", "true")
	var names string
	if err := db.QueryRow("SELECT group_concat(name) FROM app_locks").Scan(&names); err != nil || names != "a" {
		t.Errorf("the names in the table are %q, %v", names, err)
	}
	for _, dialect := range []string{"postgres", "mysql"} {
		w.run(0, "schema", "--dialect", dialect).expectOut("CREATE TABLE IF NOT EXISTS holdfast_locks")
	}
}

func TestVersion(t *testing.T) {
	w := newWorld(t)
	w.run(0, "completion", "bash").expectOut("holdfast")
	w.run(0, "--version").expectOut(w.run(0, "version").out.String())
	var v map[string]any
	if err := json.Unmarshal([]byte(w.run(0, "version", "-o", "json").out.String()), &v); err != nil || v["go"] == "" || v["version"] == "" {
		t.Error(v, err)
	}
}

// unset removes a variable from the environment.
func (w *world) unset(name string) {
	w.env = slices.DeleteFunc(w.env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

// TestHelp: the help of every command fits a hundred columns, and names one default for a flag; that of run has the
// exit codes.
func TestHelp(t *testing.T) {
	w := newWorld(t)
	commands := regexp.MustCompile(`(?m)^  ([a-z]+) {2,}`)
	defaults := regexp.MustCompile(`(?s)\(default[^)]*\)\s*\(default|\(default 0`)
	var check func(path ...string)
	check = func(path ...string) {
		help := w.run(0, append(path, "--help")...).out.String()
		for line := range strings.Lines(help) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
				t.Errorf("%v has a line of %d characters: %s", path, n, line)
			}
		}
		if found := defaults.FindString(help); found != "" {
			t.Errorf("%v has two defaults, or one that is none: %s", path, found)
		}
		_, list, _ := strings.Cut(help, "Available Commands:")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, c := range commands.FindAllStringSubmatch(list, -1) {
			if c[1] != "help" {
				check(append(slices.Clone(path), c[1])...)
			}
		}
	}
	check()
	for code, of := range map[string]string{"   75   the lock was not acquired": "run", "   76   the lock was lost": "elect", "   69   the store cannot be reached": "ls"} {
		w.run(0, of, "--help").expectOut(code)
	}
}

// TestQuiet: who does not get the lock says nothing with -q, or with -E 0, so that cron sends no mail.
func TestQuiet(t *testing.T) {
	w := newWorld(t)
	defer w.hold("x")()
	for flags, code := range map[string]int{"-n -E 0": 0, "-w 10ms -E 0": 0, "-q -n": 75, "--quiet -n -E 3": 3} {
		p := w.run(code, append(strings.Fields("run "+flags), "x", "--", "touch", w.path("ran"))...)
		if text := p.out.String() + p.err.String(); text != "" {
			t.Errorf("%s wrote %q", flags, text)
		}
	}
	w.run(75, "run", "-n", "x", "--", "true").expectErr(`lock "x" is held by `)
	w.run(127, "run", "-q", "-n", "x", "--", "no-such-command").expectErr("was not found") // an error all the same
	if p := w.run(0, "ls", "-q", "nothing"); p.out.String()+p.err.String() != "" {
		t.Errorf("ls -q wrote %q", p.err.String())
	}
}

// TestEmptyStoreVariable: a variable that is empty is not taken for none. A host whose setting is missing
// would use locks of its own.
func TestEmptyStoreVariable(t *testing.T) {
	w := newWorld(t)
	w.unset("HOLDFAST_STORE")
	w.env = append(w.env, "HOLDFAST_STORE=")
	for _, args := range [][]string{{"ls"}, {"run", "x", "--", "touch", w.path("ran")}, {"doctor"}, {"demo"}} {
		w.run(64, args...).expectErr("HOLDFAST_STORE is set, but empty")
	}
	w.run(0, "--store", "file://"+w.locks, "run", "x", "--", "true")
}

// TestSchemesHaveTheirPackages: the package that driver.Open tells others to import for a scheme registers it.
func TestSchemesHaveTheirPackages(t *testing.T) {
	text, err := os.ReadFile("../../internal/storeurl/storeurl.go")
	testserver.Must(t, err)
	for _, scheme := range driver.Schemes() {
		row := regexp.MustCompile(`"([a-z/]+)": +\{.*"` + regexp.QuoteMeta(scheme) + `"`).FindSubmatch(text)
		if scheme == "cut" { // of these tests
			continue
		}
		if row == nil {
			t.Errorf("driver.Open does not know the package of %s://", scheme)
			continue
		}
		files, _ := filepath.Glob(filepath.Join("../..", string(row[1]), "*.go"))
		if !slices.ContainsFunc(files, func(file string) bool {
			source, _ := os.ReadFile(file)
			return strings.Contains(string(source), `"`+scheme+`"`) && strings.Contains(string(source), "driver.Register(")
		}) {
			t.Errorf("package %s does not register %s://", row[1], scheme)
		}
	}
}
