package examples

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
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

// TestMain removes what the tests have built.
func TestMain(m *testing.M) {
	code := m.Run()
	dir, _ := built()
	os.RemoveAll(dir) // no directory, no error
	os.Exit(code)
}

// built returns the directory with all examples, built without the workspace: the module's own go.mod is complete.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "holdfast-examples-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", append(append([]string{"build"}, testserver.BuildFlags()...), "-ldflags=-w", "-o", dir, "./...")...)
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// process runs an example.
type process struct {
	testing.TB
	cmd   *exec.Cmd
	lines chan string // of both outputs, and at last how it has ended; then closed
	said  []string    // what was read of them
}

// start starts an example, or Java, with variables such as HOLDFAST_STORE=URL. It is killed with the test.
func start(t testing.TB, variables, program string, args ...string) *process {
	t.Helper()
	if dir, err := built(); err != nil {
		t.Fatal(err)
	} else if program != "java" {
		program = filepath.Join(dir, program)
	}
	p := &process{TB: t, cmd: exec.Command(program, args...), lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), strings.Fields(variables)...)
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	testserver.Must(t, p.cmd.Start())
	go func() { w.CloseWithError(p.cmd.Wait()) }()
	go func() {
		defer close(p.lines)
		s := bufio.NewScanner(r)
		for s.Scan() {
			p.lines <- s.Text()
		}
		p.lines <- fmt.Sprint("end: ", s.Err())
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		for range p.lines {
		}
	})
	return p
}

// says waits for a line like the pattern, and returns it.
func (p *process) says(pattern string) string {
	p.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	for line := range p.lines {
		if p.said = append(p.said, line); regexp.MustCompile(pattern).MatchString(line) {
			return line
		}
	}
	p.Fatalf("%v does not say %q, but\n%s", p.cmd.Args, pattern, strings.Join(p.said, "\n"))
	return ""
}

// ends waits for the end, without an error, and returns all that the process said.
func (p *process) ends() string {
	p.Helper()
	p.says("^end: <nil>$")
	return strings.Join(p.said, "\n")
}

func (p *process) terminate() { testserver.Must(p, p.cmd.Process.Signal(syscall.SIGTERM)) }

// TestWithoutServer runs the examples that need no server.
func TestWithoutServer(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, store string){
		"hello": func(t *testing.T, store string) {
			said := start(t, store, "hello", "-work", "200ms").ends()
			together := regexp.MustCompile(`has the lock.*\n(.* waits.*\n)*.*has the lock`)
			if strings.Count(said, "lets the lock go") != 2 || together.MatchString(said) {
				t.Errorf("hello says\n%s", said)
			}
		},
		"cron": func(t *testing.T, store string) {
			one := start(t, store, "cron", "-every", "100ms", "-min-hold", "1h")
			one.says("the job ran here")
			two := start(t, store, "cron", "-every", "100ms", "-min-hold", "1h")
			two.says("another process runs the job")
			two.terminate()
			one.terminate()
			if said := one.ends() + two.ends(); strings.Count(said, "ran here") != 1 {
				t.Errorf("in one hour\n%s", said)
			}
		},
		"election": func(t *testing.T, store string) {
			one := start(t, store, "election", "-name", "one")
			one.says("one leads")
			two := start(t, store, "election", "-name", "two")
			two.says("the leader is one")
			one.terminate()
			two.says("two leads")
			one.ends()
		},
		"http": func(t *testing.T, store string) {
			order := func(ctx context.Context, users, user string) (status int) {
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, users+user+"/orders", nil)
				if answer, err := http.DefaultClient.Do(r); err == nil {
					answer.Body.Close()
					status = answer.StatusCode
				}
				return status
			}
			one := start(t, store, "http", "-listen", "127.0.0.1:0", "-work", "1h", "-patience", "1h")
			two := start(t, store, "http", "-listen", "127.0.0.1:0", "-work", "1h", "-patience", "10ms")
			here := strings.TrimPrefix(one.says("listens at"), "listens at ") + "/users/"
			there := strings.TrimPrefix(two.says("listens at"), "listens at ") + "/users/"
			ctx, goAway := context.WithCancel(t.Context())
			defer goAway()
			go order(ctx, here, "ada")
			one.says("charges ada")
			go order(t.Context(), here, "grace") // another user
			one.says("charges grace")
			late, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for order(late, there, "ada") != http.StatusConflict { // a slow store is another status
				testserver.Must(t, late.Err())
			}
			goAway()
			go order(t.Context(), here, "ada")
			one.says("charges ada")
		},
		// If SIGTERM just ended it, its lock would stay for an hour.
		"worker": func(t *testing.T, store string) {
			store = strings.Replace(store, "file", "sqlite", 1) + "/locks.db"
			one := start(t, store, "worker", "-ttl", "1h")
			one.says("has the lock")
			two := start(t, store, "worker", "-ttl", "1h")
			two.says("waits: held by another")
			one.terminate()
			two.says("has the lock")
			one.ends()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, "HOLDFAST_STORE=file://"+t.TempDir())
		})
	}
}

// TestMissingServer: an example says which server does not answer.
func TestMissingServer(t *testing.T) {
	const nobody = "127.0.0.1:1"
	for program, variable := range map[string]string{
		"flashsale": "DATABASE_URL=postgres://" + nobody + "/app",
		"tx":        "DATABASE_URL=postgres://" + nobody + "/app",
		"goandjava": "REDIS_URL=redis://" + nobody,
		"hello":     "HOLDFAST_STORE=redis://" + nobody,
	} {
		p := start(t, variable, program)
		p.says(nobody + ".*refused")
		p.says("end: exit status 1")
	}
}
