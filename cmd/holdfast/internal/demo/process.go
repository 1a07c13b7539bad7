package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast"
)

// childEnv marks a process as one that the demonstration has started, and holds its work as JSON.
const childEnv = "HOLDFAST_DEMO_CHILD"

// work is what a process has to do: one of the two.
type work struct {
	Store string // its URL; "": no locks are needed
	Sale  *service
	Cron  *replica
}

// IsChild reports whether this process is one that the demonstration has started. Then main, and TestMain in
// a test, must call Child and do nothing else.
func IsChild() bool { return os.Getenv(childEnv) != "" }

// Child does the work of a process that the demonstration has started, and returns its exit code.
func Child() int {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the demonstration, which kills its processes
	if err := do(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func do(ctx context.Context) (err error) {
	var w work
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &w); err != nil {
		return err
	}
	var locks *holdfast.Client
	if w.Store != "" {
		if locks, err = openStore(ctx, w.Store); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, locks.Close()) }()
	}
	if w.Sale != nil {
		return w.Sale.serve(ctx, locks)
	}
	return w.Cron.run(ctx, locks)
}

// fleet is the processes of one run. If one fails, or the context ends, all are killed, stopped ones too.
type fleet struct {
	ctx   context.Context
	kill  context.CancelCauseFunc
	ends  sync.WaitGroup
	mu    sync.Mutex
	lines map[string]int // how often the processes have written each line
}

func newFleet(ctx context.Context) *fleet {
	f := &fleet{lines: map[string]int{}}
	f.ctx, f.kill = context.WithCancelCause(ctx)
	return f
}

// start starts this program again, as a process of the fleet. The caller may close its standard input.
func (f *fleet) start(w work) (p *os.Process, in io.Closer, err error) {
	program, err := os.Executable()
	text, jsonErr := json.Marshal(w)
	cmd := exec.CommandContext(f.ctx, program)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	var stderr bytes.Buffer
	cmd.Env, cmd.Stderr, cmd.WaitDelay = append(os.Environ(), childEnv+"="+string(text)), &stderr, time.Second
	setUp(cmd)
	if err = errors.Join(err, jsonErr, inErr, outErr); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("demo: %w", err)
	}
	f.ends.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.mu.Lock()
			f.lines[lines.Text()]++
			f.mu.Unlock()
		}
		if err := cmd.Wait(); err != nil {
			f.kill(fmt.Errorf("demo: process %d: %s (%w)", cmd.Process.Pid, strings.TrimSpace(stderr.String()), err))
		}
	})
	return cmd.Process, in, nil
}

// await waits until one of the processes has written the line.
func (f *fleet) await(line string) error {
	for ; f.ctx.Err() == nil; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		n := f.lines[line]
		f.mu.Unlock()
		if n > 0 {
			return nil
		}
	}
	return context.Cause(f.ctx)
}

// wait waits until all processes have ended, killed if there is an error, and returns why they were killed.
func (f *fleet) wait(err error) error {
	if err != nil {
		f.kill(err)
	}
	f.ends.Wait()
	defer f.kill(nil)
	return context.Cause(f.ctx)
}
