package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// fleet is the processes of one run. If one fails, or the context ends, all are killed.
type fleet struct {
	stop    context.CancelCauseFunc
	members []*member
	lines   chan line // must be drained; closed when all processes have ended
	err     error     // once lines is closed: why the processes were killed, nil if they were not
}

// member is one process.
type member struct {
	*exec.Cmd
	orders *json.Encoder // what the process reads
}

// line is a line that a process has written.
type line struct {
	from int
	text string
}

// launch starts a process for each configuration, and waits until all are ready.
func launch(ctx context.Context, configs []config) (*fleet, error) {
	ctx, stop := context.WithCancelCause(ctx)
	f := &fleet{stop: stop, lines: make(chan line)}
	var readers sync.WaitGroup
	for _, c := range configs {
		if err := f.start(ctx, &readers, c); err != nil {
			stop(fmt.Errorf("demo: starting a process: %w", err))
			break
		}
	}
	go func() {
		readers.Wait()
		f.err = context.Cause(ctx)
		stop(nil)
		close(f.lines)
	}()
	var first string
	for i := range configs {
		l, err := f.next()
		if err != nil {
			return nil, err
		}
		if i > 0 && l.text != first {
			return nil, f.kill(fmt.Errorf("the processes do not share a store: one is %s, another %s",
				first, l.text))
		}
		first = l.text
	}
	return f, nil
}

// start starts one process, tells it what to do, and passes on its lines until it ends.
func (f *fleet) start(ctx context.Context, readers *sync.WaitGroup, c config) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	m := &member{Cmd: exec.CommandContext(ctx, program)}
	var stderr bytes.Buffer
	m.Env, m.Stderr, m.WaitDelay = append(os.Environ(), childEnv+"=1"), &stderr, time.Second
	setUp(m.Cmd)
	in, err := m.StdinPipe()
	if err != nil {
		return err
	}
	out, err := m.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.Start(); err != nil {
		return err
	}
	from := len(f.members)
	f.members = append(f.members, m)
	readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.lines <- line{from, lines.Text()}
		}
		if err := m.Wait(); err != nil {
			message := strings.TrimSpace(stderr.String())
			f.stop(fmt.Errorf("demo: process %d: %s (%w)", from+1, message, err))
		}
	})
	m.orders = json.NewEncoder(in)
	m.order(c)
	return nil
}

// order sends a value to the process. A process that does not read it has ended, which next tells.
func (m *member) order(value any) { _ = m.orders.Encode(value) }

// next returns the next line. The error says why there is none: all processes have ended.
func (f *fleet) next() (line, error) {
	l, ok := <-f.lines
	switch {
	case ok:
		return l, nil
	case f.err != nil:
		return line{}, f.err
	}
	return line{}, errors.New("demo: all processes have ended")
}

// kill kills the processes, stopped ones too, waits until they have ended, and returns why: the
// reason given, unless there was one before.
func (f *fleet) kill(why error) error {
	f.stop(fmt.Errorf("demo: %w", why))
	for range f.lines {
	}
	return f.err
}
