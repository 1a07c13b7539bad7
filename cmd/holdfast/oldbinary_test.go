//go:build soak && linux

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// lastOldForm is the last commit whose Redis keys and tables have the form in which a name is one record
// with its whole queue.
const lastOldForm = "76a65a2"

// buildOld returns the program of that commit, or "" if this clone has no history at all: it is shallow,
// or has one commit. The tests of each store, with statements and scripts of that version, run there all
// the same. A clone that has a history without that commit fails the test.
func buildOld(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "-C", root, "cat-file", "-e", lastOldForm+"^{commit}").CombinedOutput(); err != nil {
		shallow, _ := exec.Command("git", "-C", root, "rev-parse", "--is-shallow-repository").Output()
		commits, _ := exec.Command("git", "-C", root, "rev-list", "-n", "2", "HEAD").Output()
		if string(shallow) == "false\n" && bytes.Count(commits, []byte("\n")) > 1 {
			t.Fatalf("the commit that the old program is built from is not in the history: %s", out)
		}
		t.Logf("this clone does not have the history that the old program is built from: %s", out)
		return ""
	}
	dir := t.TempDir()
	build := exec.Command("sh", "-ec", `git -C "$0" archive "$1" | tar -x -C "$2"
cd "$2" && go build -race -o holdfast ./cmd/holdfast`, root, lastOldForm, dir)
	build.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the old program: %v\n%s", err, out)
	}
	return filepath.Join(dir, "holdfast")
}

// TestOldBinary runs the program of the commit before the form of names changed beside this one. Neither
// is ever granted a name beside the other. Where the forms differ each refuses, and the new one says what
// to do; where they do not, the two wait for each other.
func TestOldBinary(t *testing.T) {
	old := buildOld(t)
	if old == "" {
		return
	}
	const upgrade = `hold 1 names ("x"): stop those programs`
	stores := []struct {
		store string
		url   func(*world) string
		// newSays and oldSays are what each says of a name that the other holds; "": the form is the same.
		newSays, oldSays string
	}{
		{"files", func(w *world) string { return "file://" + w.locks }, "", ""},
		{"SQLite", func(w *world) string { return "sqlite://" + w.path("locks.db") }, upgrade, "version \"2\""},
		{"Redis", func(w *world) string {
			return "redis://" + testserver.StartRedis(w.t, testserver.RedisOptions{}).Addr
		}, "an older version of Holdfast", "WRONGTYPE"},
		{"PostgreSQL", func(w *world) string { return testserver.StartPostgres(w.t).URL("postgres") }, upgrade, "version \"2\""},
		{"MariaDB", func(w *world) string { return testserver.StartMariaDB(w.t).URL() }, upgrade, "version \"2\""},
		{"etcd", func(w *world) string {
			return "etcd://" + testserver.StartEtcd(w.t, testserver.EtcdOptions{}).Addrs()
		}, "", ""},
	}
	for _, c := range stores[:testserver.Long(2, len(stores))] {
		t.Run(c.store, func(t *testing.T) {
			w := newWorld(t)
			w.env = append(w.env, "HOLDFAST_STORE="+c.url(w))
			current := filepath.Join(bin, "holdfast")
			for _, pair := range []struct{ holder, other, says string }{{old, current, c.newSays}, {current, old, c.oldSays}} {
				code, says := 69, pair.says
				if says == "" {
					code, says = 75, "is held by another"
				}
				end := w.commandOf(pair.holder, "run", "x", "--", "sh", "-c", "echo up; cat").hold()
				for _, patience := range []string{"-n", "-w1s"} {
					p := w.commandOf(pair.other, "run", patience, "x", "--", "echo", "second").start()
					p.ends(code)
					if !strings.Contains(p.err.String(), says) || p.out.String() != "" {
						t.Errorf("%s of %s beside a holder of the other version wrote\n%s%s", patience, pair.other, p.out.String(), p.err.String())
					}
				}
				end()
			}
			// The new program has released the name, and goes on with it.
			w.run(0, "run", "x", "--", "true")
		})
	}
}
