//go:build soak

package interop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// peerVariable is set where this program is to be that of Holdfast's services.
const peerVariable = "HOLDFAST_INTEROP_PEER"

func TestMain(m *testing.M) {
	if os.Getenv(peerVariable) != "" {
		if err := serveServices(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// library is a kind of peer.
type library struct {
	name    string
	command func(address string) *exec.Cmd
}

// redisPy is redis-py's own Lock.
func redisPy(t *testing.T) library {
	dir := testserver.NeedPeers(t)
	return library{name: "redis-py", command: func(address string) *exec.Cmd {
		host, port, _ := net.SplitHostPort(address)
		return exec.Command(filepath.Join(dir, "python", "bin", "python3"), "python/peer.py", host, port)
	}}
}

// tieredC1 makes the virtual machine compile quickly, and less well.
const tieredC1 = "-XX:TieredStopAtLevel=1"

// inJavaWith runs a program of java, which scripts/install-peers has compiled, with the archives of a directory.
func inJavaWith(dir, archives string, args ...string) *exec.Cmd {
	classPath := filepath.Join(dir, "java", "classes") + ":" + filepath.Join(dir, archives, "*")
	return exec.Command("java", append([]string{tieredC1, "-cp", classPath}, args...)...)
}

// peer is a process of a library.
type peer struct {
	t testing.TB
	library
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string // closed when the process has ended
	errors  strings.Builder
}

// start starts a peer, which ends with the test, or with the test's process.
func (l library) start(t testing.TB, address string) *peer {
	t.Helper()
	p := l.launch(t, address)
	p.expect("ready", p.answer())
	return p
}

// launch is start of a program that may not be ready, and may say other things.
func (l library) launch(t testing.TB, address string) *peer {
	t.Helper()
	p := &peer{t: t, library: l, cmd: l.command(address), answers: make(chan string)}
	p.cmd.SysProcAttr = diesWithParent
	p.cmd.Stderr = &p.errors
	out, err1 := p.cmd.StdoutPipe()
	in, err2 := p.cmd.StdinPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	p.in = in
	testserver.Must(t, p.cmd.Start())
	go func() {
		defer close(p.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.answers <- lines.Text()
		}
		_ = p.cmd.Wait() // the answers tell
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process by SIGKILL, stopped or not.
func (p *peer) kill() {
	p.signal(syscall.SIGKILL)
	for range p.answers {
	}
}

func (p *peer) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // fails if it has ended

// tell sends a command.
func (p *peer) tell(format string, args ...any) {
	fmt.Fprintf(p.in, format+"\n", args...) // if this fails, there is no answer
}

// answer returns the answer to a command.
func (p *peer) answer() string {
	p.t.Helper()
	select {
	case answer, ok := <-p.answers:
		if !ok {
			p.t.Fatalf("%s has ended: %v\n%s", p.name, p.cmd.ProcessState, p.errors.String())
		}
		return answer
	case <-time.After(2 * time.Minute):
		p.t.Fatalf("%s does not answer", p.name)
		return ""
	}
}

// ask sends a command and returns the answer.
func (p *peer) ask(format string, args ...any) string {
	p.t.Helper()
	p.tell(format, args...)
	return p.answer()
}

// do sends a command whose answer must be want.
func (p *peer) do(want, format string, args ...any) {
	p.t.Helper()
	if got := p.ask(format, args...); got != want {
		p.t.Fatalf("%s answers %q to %q, not %q", p.name, got, fmt.Sprintf(format, args...), want)
	}
}

func (p *peer) expect(want, got string) {
	p.t.Helper()
	if got != want {
		p.t.Fatalf("%s says %q, not %q", p.name, got, want)
	}
}

// loses checks that the peer is told that it has lost its lock.
func (p *peer) loses() {
	p.t.Helper()
	p.do("lost", "extend 120000")
	p.do("lost", "unlock")
}
