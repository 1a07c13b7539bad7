//go:build soak

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// patience is how long a test waits for what must come: so long hangs what does not.
const patience = 2 * time.Minute

// program is a process with services of a library of Java, or of Holdfast.
type program struct {
	*peer
	mu       sync.Mutex
	services map[string]*service
	last     atomic.Int64 // service
}

// startCurator starts a program in Java.
func startCurator(t testing.TB) *program {
	t.Helper()
	dir := testserver.NeedPeers(t)
	return startProgram(t, library{name: "Curator", command: func(string) *exec.Cmd { return inJavaWith(dir, "java", "CuratorPeer") }})
}

// startHoldfast starts a program in Go.
func startHoldfast(t testing.TB) *program {
	t.Helper()
	return startProgram(t, library{name: "Holdfast", command: func(string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), peerVariable+"=services")
		return cmd
	}})
}

func startProgram(t testing.TB, l library) *program {
	t.Helper()
	p := &program{peer: l.start(t, ""), services: map[string]*service{}}
	go p.dispatch()
	return p
}

// dispatch gives each service what it says.
func (p *program) dispatch() {
	for line := range p.answers {
		words := strings.SplitN(line, " ", 3)
		p.mu.Lock()
		s := p.services[words[0]]
		p.mu.Unlock()
		if words[1] == "=" {
			s.answers <- words[2]
		} else {
			s.events <- words[2]
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.services {
		close(s.answers)
	}
}

// service is one of a program's, as one test uses it.
type service struct {
	t       testing.TB
	program *program
	id      string
	answers chan string // closed when the program has ended
	events  chan string
	servers string
}

// open opens a service with a session of that length, or whose locks last so long. More is what Redisson is
// told beside that.
func (p *program) open(t testing.TB, servers string, session time.Duration, more ...any) *service {
	t.Helper()
	s := &service{
		t: t, program: p, id: fmt.Sprint("s", p.last.Add(1)),
		answers: make(chan string, 16), events: make(chan string, 1024), // none blocks the others
		servers: servers,
	}
	p.mu.Lock()
	p.services[s.id] = s
	p.mu.Unlock()
	s.do("ok", "%s", strings.TrimSpace(fmt.Sprintln(append([]any{"open", servers, session.Milliseconds()}, more...)...)))
	return s
}

func (s *service) String() string { return s.program.name }

// tell sends a command.
func (s *service) tell(format string, args ...any) {
	s.program.tell(s.id+" "+format, args...)
}

// answer returns the answer to a command.
func (s *service) answer() string {
	s.t.Helper()
	return s.await(s.answers, "an answer")
}

func (s *service) await(from <-chan string, what string) string {
	s.t.Helper()
	select {
	case text, ok := <-from:
		if !ok {
			s.t.Fatalf("%v has ended: %s", s, s.program.errors.String())
		}
		return text
	case <-time.After(patience):
		s.t.Fatalf("%v does not give %s", s, what)
		return ""
	}
}

// finish awaits the answer to a command of many times, which must be ok. It takes as long as it takes, if
// it goes on.
func (s *service) finish() {
	s.t.Helper()
	at := "the start"
	for stuck := time.NewTimer(patience); ; stuck.Reset(patience) {
		select {
		case at = <-s.events:
			continue
		case answer, ok := <-s.answers:
			stuck.Stop()
			if !ok {
				s.t.Fatalf("%v has ended: %s", s, s.program.errors.String())
			}
			if answer != "ok" {
				s.t.Fatalf("%v says %q", s, answer)
			}
			return
		case <-stuck.C:
			s.t.Fatalf("%v has not gone on for %v since %q", s, patience, at)
		}
	}
}

// expect awaits an answer, which must be want.
func (s *service) expect(want string) {
	s.t.Helper()
	if got := s.answer(); got != want {
		s.t.Fatalf("%v says %q, not %q", s, got, want)
	}
}

// ask sends a command and returns the answer.
func (s *service) ask(format string, args ...any) string {
	s.t.Helper()
	s.tell(format, args...)
	return s.answer()
}

// do sends a command whose answer must be want.
func (s *service) do(want, format string, args ...any) {
	s.t.Helper()
	if got := s.ask(format, args...); got != want {
		s.t.Fatalf("%v answers %q to %q, not %q", s, got, fmt.Sprintf(format, args...), want)
	}
}

// event awaits an event, and passes over others.
func (s *service) event(want string) {
	s.t.Helper()
	var others []string
	for got := ""; got != want; {
		got = s.await(s.events, fmt.Sprintf("the event %q, but %q", want, others))
		others = append(others, got)
	}
}

// silent checks that there is no answer yet, although others had time to give one.
func (s *service) silent() {
	s.t.Helper()
	select {
	case got := <-s.answers:
		s.t.Fatalf("%v already says %q", s, got)
	default:
	}
}
