//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfastlock/holdfast/cmd/holdfast/internal/demo"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
)

// The tests run holdfast as a process. The program is the test binary under
// another name, so that the race detector watches it, and so that it knows one
// store more: cut:///dir is file:///dir until the file dir.cut exists; then it
// cannot be reached.

// bin is the directory with the programs: links to the test binary.
var bin string

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	if name == "holdfast" || demo.IsChild() {
		if os.Getenv("IMPATIENT") == "" {
			cli.Patience = 60
		}
		main()
	}
	if helper, ok := helpers[name]; ok {
		helper(os.Args[1:])
		os.Exit(0)
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	handleSignals()
	self, err := os.Executable()
	if err == nil {
		bin, err = os.MkdirTemp("", "holdfast-test-*")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	for _, name := range []string{"holdfast", "stamp", "tree", "once", "signals", "until"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// handleSignals has the programs of the tests get the default action of signals that this process was
// started to ignore. A shell that starts the tests in the background has them ignore SIGINT, and programs
// that they start would inherit that. Programs do not inherit a handled signal.
func handleSignals() {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

func init() {
	driver.Register("cut", func(ctx context.Context, u *url.URL) (driver.Driver, error) {
		file := *u
		file.Scheme = "file"
		d, err := driver.Open(ctx, &file)
		return cutStore{wrap.Forward{Driver: d}, u.Path + ".cut"}, err
	})
}

// cutStore is a store that can be cut off.
type cutStore struct {
	wrap.Forward
	file string
}

var errCut = errors.New("the store cannot be reached")

func (c cutStore) cut() bool {
	_, err := os.Stat(c.file)
	return err == nil
}

func (c cutStore) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	out := make([]driver.Renewal, len(grants))
	if !c.cut() {
		return c.Forward.Renew(ctx, grants)
	}
	for i := range out {
		out[i].Err = errCut
	}
	return out
}

func (c cutStore) Release(ctx context.Context, grants []driver.Grant) []error {
	out := make([]error, len(grants))
	if !c.cut() {
		return c.Forward.Release(ctx, grants)
	}
	for i := range out {
		out[i] = errCut
	}
	return out
}

// world is a store of a test's own, and the environment to use it in.
type world struct {
	t     *testing.T
	dir   string // for the test's files
	locks string // the store's directory
	env   []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	w := &world{t: t, dir: dir, locks: filepath.Join(dir, "locks")}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "HOLDFAST_") && !strings.HasPrefix(entry, "XDG_") {
			w.env = append(w.env, entry)
		}
	}
	w.env = append(w.env, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir, "HOLDFAST_STORE=file://"+w.locks,
		"GORACE=atexit_sleep_ms=0") // the race detector's programs take a second to end otherwise
	return w
}

// newWorldOf is newWorld with a store of another kind.
func newWorldOf(t *testing.T, url string) *world {
	t.Helper()
	w := newWorld(t)
	w.env = append(w.env, "HOLDFAST_STORE="+url)
	return w
}

// absent fails if a command has made a file, because it ran without its lock.
func (w *world) absent(name string) {
	w.t.Helper()
	if _, err := os.Stat(w.path(name)); err == nil {
		w.t.Error("a command ran without its lock")
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// process is a running holdfast.
type process struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err buffer
	done     chan struct{}
}

// buffer is what a process has written so far.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (w *world) command(args ...string) *process {
	p := &process{t: w.t, cmd: exec.Command(filepath.Join(bin, "holdfast"), args...), done: make(chan struct{})}
	p.cmd.Args[0] = "holdfast"
	p.cmd.Env, p.cmd.Dir = w.env, w.dir
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = 10 * time.Second
	return p
}

func (p *process) start() *process {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	p.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (w *world) start(args ...string) *process {
	w.t.Helper()
	return w.command(args...).start()
}

// timeLimit is how long an operation may take that should take almost no time.
const timeLimit = 5 * time.Minute

// wait waits for the end, and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(timeLimit):
		p.cmd.Process.Signal(syscall.SIGABRT) // it writes what its goroutines do
		select {
		case <-p.done:
		case <-time.After(timeLimit / 10):
		}
		p.t.Fatalf("%v is still running; it wrote\n%s%s", p.cmd.Args, p.out.String(), p.err.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// run runs holdfast to its end and expects an exit code.
func (w *world) run(code int, args ...string) *process {
	w.t.Helper()
	p := w.start(args...)
	p.ends(code)
	return p
}

// ends expects an exit code.
func (p *process) ends(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Fatalf("%v: exit code %d, want %d; it wrote\n%s%s", p.cmd.Args, got, code, p.out.String(), p.err.String())
	}
}

// expectOut expects a text on stdout.
func (p *process) expectOut(text string) {
	p.t.Helper()
	if !strings.Contains(p.out.String(), text) {
		p.t.Errorf("%v: %q is not in its output\n%s", p.cmd.Args, text, p.out.String())
	}
}

// expectErr expects one line on stderr, with a text.
func (p *process) expectErr(text string) {
	p.t.Helper()
	line, _, _ := strings.Cut(p.err.String(), "\n")
	if !strings.HasPrefix(line, "holdfast: ") || !strings.Contains(line, text) {
		p.t.Errorf("%v: %q is not in the first line of its errors\n%s", p.cmd.Args, text, p.err.String())
	}
}

// says expects a text anywhere in the errors.
func (p *process) says(text string) {
	p.t.Helper()
	if !strings.Contains(p.err.String(), text) {
		p.t.Errorf("%v does not say %q:\n%s", p.cmd.Args, text, p.err.String())
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(timeLimit); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

func (p *process) awaitOutput(text string) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("%q from %v", text, p.cmd.Args), func() bool {
		select {
		case <-p.done:
			if !strings.Contains(p.out.String(), text) {
				p.t.Fatalf("%v ended, having written\n%s%s", p.cmd.Args, p.out.String(), p.err.String())
			}
		default:
		}
		return strings.Contains(p.out.String(), text)
	})
}

// awaitQueue waits until n are queued for a name.
func (w *world) awaitQueue(name string, n int) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%d waiters for %s", n, name), func() bool {
		return strings.Count(w.run(0, "show", name, "-o", "json").out.String(), `"waiting_seconds"`) == n
	})
}

// hold holds a name until the test ends or calls the function.
func (w *world) hold(name string, flags ...string) (end func()) {
	w.t.Helper()
	return w.command(append(append([]string{"run"}, flags...), name, "--", "sh", "-c", "echo up; cat")...).hold()
}

// hold starts a holder, which holds until the test ends or calls the function.
func (p *process) hold() (end func()) {
	p.t.Helper()
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.start()
	p.awaitOutput("up")
	return func() {
		p.t.Helper()
		stdin.Close()
		p.ends(0)
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// helpers are programs for holdfast to run: the test binary under these names.
var helpers = map[string]func(args []string){
	"stamp":   func(args []string) { stamp(args[0]) },
	"tree":    func(args []string) { tree(args[0]) },
	"once":    func(args []string) { writeStamp(args[0]); time.Sleep(50 * time.Millisecond) },
	"signals": func([]string) { signals() },
	"until":   func(args []string) { until(args[0]) },
}

// writeStamp writes the time into a file. The clock is the host's, so that the
// times of several processes can be compared.
func writeStamp(file string) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	stampInto(f)
}

func stampInto(f *os.File) {
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(driver.HostClock.Now())), 0); err != nil {
		panic(err)
	}
}

// stamped is the last time in a file, or 0.
func stamped(file string) driver.Instant {
	b, err := os.ReadFile(file)
	if err != nil || len(b) < 8 {
		return 0
	}
	return driver.Instant(binary.LittleEndian.Uint64(b))
}

// stamp writes the time into a file again and again. It catches signals and goes on; it records the time
// of the first SIGTERM.
func stamp(file string) {
	term := make(chan os.Signal, 1)
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		<-term
		writeStamp(file + ".term")
	}()
	f, err := os.Create(file)
	if err != nil {
		panic(err)
	}
	for {
		stampInto(f)
		time.Sleep(time.Millisecond / 2)
	}
}

// tree is stamp with a child, and with a daemon: a process that has left its
// group and session, and whose parent is gone.
func tree(file string) {
	self := os.Args[0]
	if err := exec.Command(filepath.Join(filepath.Dir(self), "stamp"), file+".child").Start(); err != nil {
		panic(err)
	}
	daemon := exec.Command("sh", "-c", `"$0" "$1" & exit 0`, filepath.Join(filepath.Dir(self), "stamp"), file+".daemon")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := daemon.Run(); err != nil {
		panic(err)
	}
	stamp(file)
}

// treeFiles are the files of tree.
func treeFiles(file string) []string { return []string{file, file + ".child", file + ".daemon"} }

// awaitStamps waits until all of them have begun.
func awaitStamps(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		await(t, "a stamp in "+file, func() bool { return stamped(file) != 0 })
	}
}

func nowStamp() driver.Instant { return driver.HostClock.Now() }

// goneBefore fails the test if one of them went on after another had begun.
func goneBefore(t *testing.T, other string, files ...string) {
	t.Helper()
	began := stamped(other)
	if began == 0 {
		t.Fatalf("%s has no stamp", other)
	}
	for _, file := range files {
		last := stamped(file)
		if last == 0 {
			t.Errorf("%s has no stamp", file)
		}
		if late := last.Sub(began); late >= 0 {
			t.Errorf("%s was still running %v after another began", filepath.Base(file), late)
		}
	}
}

// signals prints the signals that come, and ends with exit code 5 at the second
// SIGTERM.
func signals() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT)
	fmt.Println("up")
	terms := 0
	for s := range c {
		fmt.Println(s)
		if s == syscall.SIGTERM {
			if terms++; terms == 2 {
				os.Exit(5)
			}
		}
	}
}

// until ends when a file is there.
func until(file string) {
	fmt.Println("up")
	for _, err := os.Stat(file); err != nil; _, err = os.Stat(file) {
		time.Sleep(2 * time.Millisecond)
	}
}
