//go:build linux

package docstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// runWithin is how long a block may run.
const runWithin = 60 * time.Second

// commandDir is the directory with the command, built once.
var commandDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "holdfast-docs-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir+"/holdfast", "./cmd/holdfast")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// runner runs the blocks of one page, in order. What a block exports, later ones have.
type runner struct {
	t        *testing.T
	dir      string // where the blocks run
	replace  *strings.Replacer
	sql      func(statements string) // runs a block of SQL as the server's administrator
	module   string                  // the directory of the page's programs; "": none yet
	last     string                  // what the last block wrote to its standard output
	ran      int
	programs int
}

// newRunner returns a runner that replaces, in what the page says, each odd argument by the next one.
func newRunner(t *testing.T, replace ...string) *runner {
	t.Helper()
	bin, err := commandDir()
	testserver.Must(t, err)
	repo, err := filepath.Abs(root)
	testserver.Must(t, err)
	r := &runner{t: t, dir: t.TempDir(), replace: strings.NewReplacer(replace...)}
	environment := fmt.Sprintf("unset HOLDFAST_STORE XDG_STATE_HOME GOWORK; export PATH=%q:$PATH HOME=%q HOLDFAST=%q \n%s",
		bin, r.dir, repo, goCaches(t))
	testserver.Must(t, os.WriteFile(r.environment(), []byte(environment), 0o600))
	return r
}

func (r *runner) environment() string { return filepath.Join(r.dir, ".environment") }

// page runs every block of a page, and fails the test for a block that it does not know how to run.
func (r *runner) page(name string) {
	r.t.Helper()
	for _, b := range blocks(name, read(r.t, name)) {
		at := fmt.Sprintf("%s:%d", b.page, b.line)
		text := r.replace.Replace(b.text)
		switch {
		case b.note == "release": // package internal/test/release runs it, as the go command would
		case strings.HasPrefix(b.note, "write "):
			file := filepath.Join(r.dir, filepath.Base(strings.TrimPrefix(b.note, "write ")))
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				r.t.Fatal(err)
			}
		case b.kind == "sh":
			r.shell(at, text, b.note)
		case b.kind == "crontab":
			r.crontab(at, text)
		case b.kind == "sql" && r.sql != nil:
			r.sql(text)
		case b.kind == "go" && strings.HasPrefix(b.text, "package main"):
			r.program(at, text, b.note)
		case b.kind == "go", b.kind == "java":
			quoted(r.t, at, b.text)
		case b.kind == "conf": // for hosts that a test has not
		case b.kind == "text" && r.ran > 0:
			r.wrote(at, b.text)
		default:
			r.t.Errorf("%s: no test runs a block of the kind %q here", at, b.kind)
			continue
		}
		r.ran++
	}
	if r.ran == 0 {
		r.t.Errorf("%s has nothing to run", name)
	}
}

// shell runs a script, which fails at its first command that fails. The note may be "exit N", or
// "until TEXT": then it is interrupted once it has written the text.
func (r *runner) shell(at, script, note string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), runWithin)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail; . ./.environment\n"+script+"\nexport -p >$HOME/.environment")
	c.Dir, c.SysProcAttr, c.WaitDelay = r.dir, &syscall.SysProcAttr{Setpgid: true}, 10*time.Second
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	var out, all output
	c.Stdout, c.Stderr = io.MultiWriter(&out, &all), &all
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	text, interrupt := strings.CutPrefix(note, "until ")
	if interrupt {
		for !strings.Contains(all.String(), text) && ctx.Err() == nil {
			time.Sleep(5 * time.Millisecond)
		}
	}
	waited := make(chan struct{})
	go func() { // again and again: a shell goes on if the program that it waits for ends well at that moment
		for interrupt && ctx.Err() == nil {
			syscall.Kill(-c.Process.Pid, syscall.SIGINT)
			select {
			case <-waited:
				return
			case <-time.After(3 * time.Second):
			}
		}
	}()
	err := c.Wait()
	close(waited)
	r.last = out.String()
	code := 0
	if _, err := fmt.Sscanf(note, "exit %d", &code); err != nil && note != "" && !interrupt {
		r.t.Errorf("%s: no test knows the note %q", at, note)
	}
	if ctx.Err() != nil || !interrupt && c.ProcessState.ExitCode() != code {
		r.t.Errorf("%s: %v, want exit code %d; it wrote\n%s\nof\n%s", at, err, code, all.String(), script)
	}
}

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// cronLine matches the five fields of a line of cron's, and its command.
var cronLine = regexp.MustCompile(`^(?:\S+\s+){5}(.*)$`)

// crontab runs the command of each line once, as cron would: by sh. A line may also set a variable.
func (r *runner) crontab(at, table string) {
	r.t.Helper()
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, "="); ok && !strings.ContainsAny(name, " *") {
			r.shell(at, fmt.Sprintf("export %s=%q", name, value), "")
		} else if m := cronLine.FindStringSubmatch(line); m != nil {
			r.shell(at, m[1], "")
		} else if line != "" && line[0] != '#' {
			r.t.Errorf("%s: %q is no line of cron's", at, line)
		}
	}
}

// wrote expects the output of the last block. A line … stands for any number of lines.
func (r *runner) wrote(at, want string) {
	r.t.Helper()
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", "(?s:.*?)")
	if !regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(r.last)) {
		r.t.Errorf("%s: the block before wrote\n%s\nwant\n%s", at, r.last, want)
	}
}

// program builds and runs a program in a workspace with all modules of the repository, so that it
// needs nothing but what is there. With the note "go test" it is a test.
func (r *runner) program(at, text, note string) {
	r.t.Helper()
	if r.module == "" {
		r.module = filepath.Join(r.dir, "programs")
		if err := os.Mkdir(r.module, 0o755); err != nil {
			r.t.Fatal(err)
		}
		r.write("go.mod", "module programs\n\ngo 1.26.0\n")
		repo, err := filepath.Abs(root)
		if err != nil {
			r.t.Fatal(err)
		}
		work := regexp.MustCompile(`(?m)^\t\.`).ReplaceAllString(read(r.t, "go.work"), "\t"+repo)
		r.write("go.work", strings.Replace(work, "use (", "use (\n\t.", 1))
		r.write("go.work.sum", read(r.t, "go.work.sum"))
	}
	r.programs++
	name := fmt.Sprintf("p%d", r.programs)
	file, command := name+"/main.go", "go run ./"+name
	if note == "go test" {
		file, command, note = name+"/main_test.go", "go test -count=1 ./"+name, ""
	}
	r.write(file, text)
	r.shell(at, "cd programs\nexport GOFLAGS=-mod=readonly GOWORK=$PWD/go.work\n"+command+"\ncd ..; unset GOWORK GOFLAGS", note)
}

// goCaches are Go's caches of the user that runs the tests: the blocks have another HOME.
func goCaches(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB").Output()
	testserver.Must(t, err)
	v := strings.Split(string(out), "\n")
	return fmt.Sprintf("export GOCACHE=%q GOMODCACHE=%q GOPROXY=%q GOSUMDB=%q\n", v[0], v[1], v[2], v[3])
}

func (r *runner) write(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.module, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		r.t.Fatal(err)
	}
}

// sources are the lines of each test, doc.go, example and Java file of the repository, without what surrounds them.
var sources = sync.OnceValues(func() (all []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err != nil || !strings.HasSuffix(name, "_test.go") && name != "doc.go" && name != "main.go" && !strings.HasSuffix(name, ".java") {
			return err
		}
		text, err := os.ReadFile(path)
		all = append(all, trimmed(string(text)))
		return err
	})
	return all, err
})

// trimmed returns the lines of a program without indentation and comments that are lines of their own.
func trimmed(text string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// quoted expects that the lines of a piece of Go or Java stand in a test of the repository, which runs them.
func quoted(t *testing.T, at, text string) {
	t.Helper()
	all, err := sources()
	testserver.Must(t, err)
	for _, source := range all {
		if strings.Contains(source, trimmed(text)) {
			return
		}
	}
	t.Errorf("%s: no example in the repository has these lines:\n%s", at, text)
}
