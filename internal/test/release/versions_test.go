//go:build soak

package release

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestTwoVersions: a release and the tree, which becomes the next one, exclude each other on one
// store, each sees the other's hold, and tokens grow from one to the other.
//
// The release is the latest that is tagged. Before the first it is the tree itself, as released by
// scripts/release.
func TestTwoVersions(t *testing.T) {
	r := released(t)
	before := r.lastRelease(t)
	now := filepath.Join(temp, "holdfast-now")
	if _, err := run(filepath.Join(r.root, "cmd/holdfast"), nil, "go", "build", "-o", now, "."); err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string]func(t *testing.T) string{
		"file":   func(t *testing.T) string { return "file://" + t.TempDir() },
		"sqlite": func(t *testing.T) string { return "sqlite://" + t.TempDir() + "/locks.db" },
		"redis": func(t *testing.T) string {
			return "redis://" + testserver.StartRedis(t, testserver.RedisOptions{}).Addr
		},
		"etcd": func(t *testing.T) string {
			return "etcd://" + testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
		},
		"postgres": func(t *testing.T) string { return testserver.StartPostgres(t).URL("postgres") },
		"mysql":    func(t *testing.T) string { return testserver.StartMariaDB(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := start(t)
			first := exclude(t, store, before, now)
			second := exclude(t, store, now, before)
			third := exclude(t, store, before, now)
			if first >= second || second >= third {
				t.Errorf("tokens %d, %d, %d: want them to grow", first, second, third)
			}
		})
	}
}

// lastRelease returns the command of the latest release.
func (r *repo) lastRelease(t *testing.T) string {
	t.Helper()
	out, err := run(r.root, nil, "git", "tag", "--list", "--sort=-version:refname", "cmd/holdfast/v*")
	testserver.Must(t, err)
	tags := slices.DeleteFunc(strings.Fields(out), func(tag string) bool { return strings.Contains(tag, "-") })
	if len(tags) == 0 {
		return filepath.Join(r.bin, "holdfast")
	}
	tree, program := filepath.Join(temp, "before"), filepath.Join(temp, "holdfast-before")
	if _, err := run(r.clone, nil, "git", "worktree", "add", "-q", "--detach", tree, tags[0]); err != nil {
		t.Fatal(err)
	}
	// The tree of a tag has a go.work: its modules are those of the tag.
	if _, err := run(filepath.Join(tree, "cmd/holdfast"), nil, "go", "build", "-o", program, "."); err != nil {
		t.Fatal(err)
	}
	return program
}

// exclude has one program hold a lock while the other one wants it, and returns the token.
func exclude(t *testing.T, store, holder, other string) int64 {
	t.Helper()
	const busy = 75
	hold := command(store, holder, "run", "job", "--", "sh", "-c", "echo $HOLDFAST_TOKEN; read end")
	stdin, err1 := hold.StdinPipe()
	stdout, err2 := hold.StdoutPipe()
	testserver.Must(t, err1, err2, hold.Start())
	t.Cleanup(func() { hold.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	testserver.Must(t, err)
	token, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	testserver.Must(t, err)
	err = command(store, other, "run", "-n", "job", "--", "true").Run()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != busy {
		t.Errorf("%s while %s holds the lock: %v, want exit code %d", other, holder, err, busy)
	}
	if out, err := command(store, other, "ls", "-o", "json").Output(); err != nil || !strings.Contains(string(out), fmt.Sprintf(`"token":%d,`, token)) {
		t.Errorf("ls of %s: %s, %v, want a holder with token %d", other, out, err, token)
	}
	waiter := command(store, other, "run", "-w", "30s", "job", "--", "true")
	testserver.Must(t, waiter.Start())
	io.WriteString(stdin, "\n")
	if err := hold.Wait(); err != nil {
		t.Errorf("%s: %v", holder, err)
	}
	if err := waiter.Wait(); err != nil {
		t.Errorf("%s waits for %s: %v", other, holder, err)
	}
	return token
}

// command is one of the programs on a store.
func command(store, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "HOLDFAST_STORE="+store)
	cmd.Stderr = os.Stderr
	return cmd
}
