package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// fleet is the processes of one run.
type fleet struct {
	members []*member
	replies chan message // closed when all have ended
	done    chan struct{}
	stop    context.CancelFunc
}

// member is one process.
type member struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	requests *json.Encoder
	ready    reply
	err      error // why it ended, once replies is closed
}

// message is a reply with the number of the process that it is from.
type message struct {
	from int
	reply
}

// launch starts a process for each configuration, and waits until all are
// ready. When the context ends they are killed.
func launch(ctx context.Context, configs []config) (*fleet, error) {
	ctx, stop := context.WithCancel(ctx)
	f := &fleet{replies: make(chan message), done: make(chan struct{}), stop: stop}
	var readers sync.WaitGroup
	var err error
	for _, c := range configs {
		if err = f.start(ctx, &readers, c); err != nil {
			break
		}
	}
	go func() {
		readers.Wait()
		close(f.replies)
	}()
	if err == nil {
		err = f.awaitReady(ctx)
	}
	if err != nil {
		f.kill()
		return nil, err
	}
	return f, nil
}

// start starts one process and its reader.
func (f *fleet) start(ctx context.Context, readers *sync.WaitGroup, c config) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	m := &member{cmd: exec.CommandContext(ctx, program)}
	stderr := &bytes.Buffer{}
	m.cmd.Env = append(os.Environ(), childEnv+"=1")
	m.cmd.Stderr = stderr
	m.cmd.WaitDelay = time.Second
	setUp(m.cmd)
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := m.cmd.Start(); err != nil {
		return fmt.Errorf("demo: starting a process: %w", err)
	}
	from := len(f.members)
	f.members = append(f.members, m)
	readers.Go(func() {
		replies := json.NewDecoder(out)
		var failed error
		for {
			var r reply
			if failed = replies.Decode(&r); failed != nil {
				break
			}
			select {
			case f.replies <- message{from, r}:
			case <-f.done: // nobody listens any more
			}
		}
		if failed == io.EOF {
			failed = nil
		} else {
			_ = m.cmd.Process.Kill() // what it said was no reply
		}
		if m.err = errors.Join(failed, m.cmd.Wait()); m.err != nil {
			m.err = fmt.Errorf("%s (%w)", strings.TrimSpace(stderr.String()), m.err)
			select {
			case f.replies <- message{from, reply{Error: m.err.Error()}}:
			case <-f.done:
			}
		}
	})
	m.requests = json.NewEncoder(m.in)
	return f.send(from, c)
}

// send sends a line to a process.
func (f *fleet) send(to int, line any) error {
	if err := f.members[to].requests.Encode(line); err != nil {
		return fmt.Errorf("demo: process %d does not listen: %w", to+1, err)
	}
	return nil
}

// next returns the next reply.
func (f *fleet) next(ctx context.Context) (message, error) {
	select {
	case m, ok := <-f.replies:
		switch {
		case ok && m.Error == "":
			return m, nil
		case ctx.Err() != nil: // it was killed
			return message{}, context.Cause(ctx)
		case !ok:
			return message{}, errors.New("demo: all processes have ended")
		default:
			return message{}, fmt.Errorf("demo: process %d: %s", m.from+1, m.Error)
		}
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

func (f *fleet) awaitReady(ctx context.Context) error {
	for range f.members {
		m, err := f.next(ctx)
		if err != nil {
			return err
		}
		f.members[m.from].ready = m.reply
	}
	first := f.members[0].ready
	for _, m := range f.members {
		if m.ready.Store != first.Store {
			return fmt.Errorf("demo: the processes do not share a store: one has opened %s, another %s", first.Store, m.ready.Store)
		}
	}
	return nil
}

// leaveWithin is how long processes may take to leave when they are told to.
const leaveWithin = 15 * time.Second

// leave tells the processes to leave, waits until they have, and returns what
// went wrong in them.
func (f *fleet) leave(ctx context.Context) error {
	for _, m := range f.members {
		m.in.Close()
	}
	timer := time.AfterFunc(leaveWithin, f.stop)
	defer timer.Stop()
	f.drain()
	var errs []error
	for i, m := range f.members {
		if m.err != nil {
			errs = append(errs, fmt.Errorf("demo: process %d: %w", i+1, m.err))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// kill ends the processes, also stopped ones.
func (f *fleet) kill() {
	f.stop()
	f.drain()
}

// drain waits until the processes have ended.
func (f *fleet) drain() {
	close(f.done)
	for range f.replies {
	}
	f.stop()
}
