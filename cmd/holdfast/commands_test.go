//go:build linux

package main

import (
	"database/sql"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		says string
		args []string
	}{
		{`unknown command "rum"; did you mean run?`, []string{"rum"}},
		{"the command to run is missing", []string{"run", "x"}},
		{"the command to run is missing", []string{"run", "x", "--"}},
		{"there is no -- before the command", []string{"run", "x", "true"}},
		{"2 names are given", []string{"run", "x", "y", "--", "true"}},
		{"0 names are given", []string{"run", "--", "true"}},
		{"empty path element", []string{"run", "a//b", "--", "true"}},
		{"control character", []string{"run", "a\nb", "--", "true"}},
		{"unknown flag: --frobnicate", []string{"run", "--frobnicate", "x", "--", "true"}},
		{"a duration looks like 500ms, 30s", []string{"run", "-w", "10", "x", "--", "true"}},
		{"only one of them", []string{"run", "-n", "-w", "1s", "x", "--", "true"}},
		{"must not be negative", []string{"run", "-w", "-1s", "x", "--", "true"}},
		{"0 to 255", []string{"run", "-E", "256", "x", "--", "true"}},
		{"different kinds", []string{"run", "--shared", "--slots", "2", "x", "--", "true"}},
		{"at least 1", []string{"run", "--slots", "0", "x", "--", "true"}},
		{"give both", []string{"run", "--permits", "1", "x", "--", "true"}},
		{"Permits is 3", []string{"run", "--slots", "2", "--permits", "3", "x", "--", "true"}},
		{"must be positive", []string{"run", "--ttl", "0s", "x", "--", "true"}},
		{"--max-hold is -1s: it must be positive", []string{"run", "--max-hold", "-1s", "x", "--", "true"}},
		{"MaxHold is 8761h", []string{"run", "--max-hold", "8761h", "x", "--", "true"}},
		{"this store's shortest", []string{"run", "--ttl", "1ms", "x", "--", "true"}},
		{"LockDelay is 25h", []string{"run", "--lock-delay", "25h", "x", "--", "true"}},
		{"Note has 300 bytes", []string{"run", "--note", strings.Repeat("x", 300), "x", "--", "true"}},
		{"it must be less than 19.4s", []string{"run", "--grace", "19.5s", "x", "--", "true"}},
		{"--output is \"yaml\"", []string{"ls", "-o", "yaml"}},
		{"at most one", []string{"ls", "a", "b"}},
		{"one is needed", []string{"show"}},
		{"arguments are given", []string{"version", "x"}},
		{"known are postgres, mysql, sqlite", []string{"schema", "--dialect", "oracle"}},
		{"--dialect is missing", []string{"schema"}},
		{"no tables for \"redis\"", []string{"schema", "--dialect", "mysql", "redis"}},
		{"--tables", []string{"schema", "--dialect", "mysql", "--tables", "a;b"}},
		{"0 URLs are given", []string{"redlock", "init"}},
		{"only the servers of redlock://", []string{"redlock", "init", "redis://localhost"}},
		{"fewer than three nodes", []string{"--store", "redlock://a,b", "ls"}},
		{"empty path element", []string{"show", "/a"}},
		{"token", []string{"break", "x", "--token", "-5"}},
		{`no store has the URL scheme "nosuch"`, []string{"--store", "nosuch://user:s3cr3t@host", "ls"}},
		{"no scheme", []string{"--store", "/var/lib/locks", "ls"}},
		{"cannot be parsed", []string{"--store", "redis://user:s3cr3t%@host", "ls"}},
		{"unknown URL parameter", []string{"--store", "file:///x?hf.frob=1", "ls"}},
		{"more than a directory", []string{"--store", "file://user:s3cr3t@x/y", "ls"}},
		{"exclude nobody", []string{"--store", "mem://x", "run", "x", "--", "true"}},
		{"exclude nobody", []string{"--store", "mem://x", "demo"}},
		{`unknown command "statsu"; did you mean status?`, []string{"cell", "statsu"}},
		{`unknown command "nosuch"`, []string{"files", "nosuch"}},
		{`unknown command "inti"; did you mean init?`, []string{"redlock", "inti"}},
		{`unknown command "nosuch"`, []string{"completion", "nosuch"}},
		{`unknown command "rum"; did you mean run?`, []string{"help", "rum"}},
		{`unknown command "statsu"; did you mean status?`, []string{"help", "cell", "statsu"}},
		{"arguments are given", []string{"demo", "none"}},
		{`--ticks is "0": at least 1 is needed`, []string{"demo", "cron", "--ticks", "0"}},
		{`--ticks is "x": a whole number is needed`, []string{"demo", "cron", "--ticks", "x"}},
		{`--connections is "-1": at least 1 is needed`, []string{"serve", "--data", "d", "--connections", "-1"}},
		{"--token is 0: no hold has such a token", []string{"break", "x", "--token", "0"}},
		{`--slots is "x": a whole number is needed`, []string{"run", "--slots", "x", "x", "--", "true"}},
		{`--token is "9223372036854775808": the number is out of range`, []string{"break", "x", "--token", "9223372036854775808"}},
		{`--shared is "x": true or false is needed`, []string{"run", "--shared=x", "x", "--", "true"}},
		{`--ttl is "10": a duration looks like`, []string{"run", "--ttl", "10", "x", "--", "true"}},
		{"name a store by its URL", []string{"ls", "--store", ""}},
	} {
		p := w.run(64, c.args...)
		p.expectErr(c.says)
		if strings.Contains(p.err.String(), "strconv") {
			t.Errorf("%v: the words of a library: %s", c.args, p.err.String())
		}
		if strings.Contains(p.err.String(), "s3cr3t") {
			t.Errorf("%v: the password is shown: %s", c.args, p.err.String())
		}
		if lines := strings.Count(p.err.String(), "\n"); lines > 2 || p.out.String() != "" {
			t.Errorf("%v wrote\n%s%s", c.args, p.out.String(), p.err.String())
		}
	}
	w.run(0, "run", "--grace", "19.3s", "x", "--", "true")
}

// TestFullOutput: an output that cannot be written, as on a full disk, is a failure on this host, and no
// wrong usage.
func TestFullOutput(t *testing.T) {
	w := newWorld(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	defer w.hold("job")()
	for _, args := range [][]string{
		{"ls"}, {"ls", "-o", "json"}, {"show", "job"}, {"doctor"}, {"doctor", "-o", "json"}, {"version"}, {"schema", "--dialect", "sqlite"},
		{"cell", "token"}, {"leader", "job", "-o", "json"},
	} {
		p := w.command(args...)
		p.cmd.Stdout = full
		p.start().ends(70)
		p.expectErr("no space left on device")
	}
}

// TestForeignDirectory: a directory that is in use for something else is refused as a store that does
// not work, not as wrong usage, and is not changed.
func TestForeignDirectory(t *testing.T) {
	w := newWorld(t)
	if err := os.MkdirAll(filepath.Join(w.locks, "names"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.locks, "names", "people.lock")
	if err := os.WriteFile(file, []byte("not a lock\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"ls"}, {"show", "x"}, {"break", "x", "--token", "1"}, {"run", "x", "--", "touch", w.path("ran")}} {
		w.run(69, args...).expectErr("name an empty directory")
	}
	w.run(1, "doctor").expectOut("not one of Holdfast's files")
	if text, err := os.ReadFile(file); string(text) != "not a lock\n" {
		t.Errorf("data loss: %q, %v", text, err)
	}
	if _, err := os.Stat(w.path("ran")); err == nil {
		t.Error("the command ran without a lock")
	}
}

// TestReadingCreatesNothing: ls and show do not create the default store.
func TestReadingCreatesNothing(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.path("state"))
	w.unset("HOLDFAST_STORE")
	w.run(0, "ls")
	w.run(0, "show", "x").expectOut("x: free")
	if entries, err := os.ReadDir(w.dir); err != nil || len(entries) != 0 {
		t.Errorf("ls and show have made %v, %v", entries, err)
	}
}

func TestHelp(t *testing.T) {
	w := newWorld(t)
	w.run(0).expectOut("holdfast run nightly-backup")
	help := w.run(0, "run", "--help")
	for _, text := range []string{"   75   the lock was not acquired", "   76   the lock was lost", "holdfast run -n -E 0 nightly-backup", "HOLDFAST_TOKEN", "--min-hold", "--max-hold"} {
		help.expectOut(text)
	}
	if strings.Contains(help.out.String(), "(default 0") {
		t.Errorf("a zero is shown beside the real default:\n%s", help.out.String())
	}
	for _, command := range []string{"ls", "show", "break", "doctor"} {
		w.run(0, command, "--help").expectOut("   69   the store cannot be reached")
	}
}

// The worst names and notes: they change the direction of the text, clear the screen, end the line, or
// are invisible.
const (
	evilName = "a/\u202egnp.exe\u200b\\/é日"
	evilNote = "\x1b[2J\x1b]0;owned\x07\r\n\u202eetoN\u2066\x9b31m <b>&"
)

func TestEscaping(t *testing.T) {
	w := newWorld(t)
	end := w.hold(evilName, "--note", strings.ReplaceAll(evilNote, "\x9b", "\u009b"))
	defer end()
	for _, args := range [][]string{{"ls"}, {"show", evilName}} {
		out := w.run(0, args...).out.String()
		for _, r := range out {
			if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || strings.ContainsRune("\u202e\u200b\u2066", r) {
				t.Errorf("%v: %U is in its output", args, r)
			}
		}
		if !strings.Contains(out, `a/\u202egnp.exe\u200b\/é日`) || !strings.Contains(out, `\x1b[2J`) {
			t.Errorf("%v: it is not shown what is there:\n%s", args, out)
		}
	}
	if text := w.run(75, "run", "-n", evilName, "--", "true").err.String(); strings.ContainsAny(text, "\x1b\u202e\u200b\r") {
		t.Errorf("in an error: %q", text)
	}
	var info struct {
		Name    string
		Holders []struct{ Note string }
	}
	if err := json.Unmarshal([]byte(w.run(0, "ls", "-o", "json").out.String()), &info); err != nil {
		t.Fatal(err)
	}
	if info.Name != evilName || info.Holders[0].Note != strings.ReplaceAll(evilNote, "\x9b", "\u009b") {
		t.Errorf("JSON is not exact: %+q", info)
	}
}

func TestLsAndShow(t *testing.T) {
	w := newWorld(t)
	if p := w.run(0, "ls"); p.out.String() != "" || !strings.Contains(p.err.String(), "no locks are in use") {
		t.Errorf("an empty store: %q, %q", p.out.String(), p.err.String())
	}
	if p := w.run(0, "ls", "-o", "json"); p.out.String()+p.err.String() != "" {
		t.Errorf("an empty store: %q, %q", p.out.String(), p.err.String())
	}
	w.run(0, "show", "x").expectOut("x: free")
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
	w.run(0, "ls", "y/").expectErr(`no lock whose name begins with "y/" is in use`)
	if p := w.run(0, "ls", "a/"); strings.Count(p.out.String(), "\n") != 3 {
		t.Errorf("ls a/:\n%s", p.out.String())
	}
	p := w.run(0, "ls", "-o", "json")
	names := ""
	for line := range strings.Lines(p.out.String()) {
		var info struct {
			Name, Mode string
			Slots      int
			Holders    []map[string]any
			Waiters    []map[string]any
		}
		if err := json.Unmarshal([]byte(line), &info); err != nil || len(info.Holders) == 0 {
			t.Fatal(err, line)
		}
		if _, has := info.Holders[0]["owner"]; has {
			t.Error("an owner is shown, who could be released by it")
		}
		names += info.Name + " " + info.Mode + " "
	}
	if names != "a/1 exclusive a/2 shared b slot " {
		t.Errorf("ls -o json: %s", names)
	}
	show := w.run(0, "show", "a/1")
	for _, text := range []string{"a/1: exclusive", "HOLDER", "WAITER", "patient"} {
		show.expectOut(text)
	}
	waiter.signal(sigTERM)
	waiter.ends(128 + 15)
	prefixed := "file://" + w.locks + "?hf.prefix=a%2F"
	w.run(0, "--store", prefixed, "show", "1").expectOut("1: exclusive")
	w.run(75, "--store", prefixed, "run", "-n", "1", "--", "true")
	w.run(0, "--store", prefixed, "run", "new", "--", "sh", "-c", "holdfast show a/new | grep exclusive")
}

// TestStoreTTL: hf.ttl of the store's URL is the TTL of commands that have no --ttl.
func TestStoreTTL(t *testing.T) {
	w := newWorld(t)
	short := "file://" + w.locks + "?hf.ttl=6s"
	ends := func(flags ...string) (seconds float64) {
		args := append(append([]string{"--store", short, "run"}, flags...), "x", "--", "holdfast", "show", "x", "-o", "json")
		var shown struct {
			Holders []struct {
				Expires float64 `json:"expires_seconds"`
			}
		}
		if err := json.Unmarshal([]byte(w.run(0, args...).out.String()), &shown); err != nil || len(shown.Holders) != 1 {
			t.Fatalf("%+v, %v", shown, err)
		}
		return shown.Holders[0].Expires
	}
	if s := ends(); s <= 0 || s > 6 {
		t.Errorf("the lock ends in %v s, not 6", s)
	}
	if s := ends("--ttl", "20s"); s <= 6 {
		t.Errorf("with --ttl 20s the lock ends in %v s", s)
	}
	// The default grace fits the TTL that the URL gives.
	w.run(64, "--store", short, "run", "--grace", "5s", "x", "--", "true").expectErr("6s")
	w.run(64, "--store", "file://"+w.locks+"?hf.ttl=6", "run", "x", "--", "true").expectErr("hf.ttl")
}

// TestSchema: the statements create the tables that the store then uses.
func TestSchema(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "locks.db")
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
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
	text := w.run(0, "version").out.String()
	if other := w.run(0, "--version").out.String(); other != text || !strings.HasPrefix(text, "holdfast ") || !strings.HasSuffix(text, "\n") {
		t.Errorf("version prints %q, --version %q", text, other)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(w.run(0, "version", "-o", "json").out.String()), &v); err != nil || v["go"] == "" || v["version"] == "" {
		t.Error(v, err)
	}
}

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := w.run(0, "completion", shell).out.String()
		if !strings.Contains(script, "holdfast") {
			t.Errorf("%s: %q", shell, script)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // its syntax cannot be checked here
		}
		if out, err := exec.Command(path, "-n", "-c", script).CombinedOutput(); err != nil {
			t.Errorf("%s does not understand it: %v\n%s", shell, err, out)
		}
	}
	defer w.hold("deploy/shop")()
	defer w.hold("deploy/\u202eevil")()
	out := w.run(0, "__complete", "show", "dep").out.String()
	if !strings.Contains(out, "deploy/shop\n") || strings.Contains(out, "evil") {
		t.Errorf("names: %q", out)
	}
	w.run(0, "__complete", "ls", "-o", "").expectOut("json")
}
