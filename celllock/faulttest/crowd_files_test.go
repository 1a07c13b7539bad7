//go:build soak

package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/fence"
)

// fileReport is what the clients of a process that use files have to say since the last report.
type fileReport struct {
	Ops    []fileOp
	Told   []watched
	Alive  *cell.Node // the node of the watcher's session
	Fenced []fencedWrite
}

// fencedWrite is a write that was done under a lock.
type fencedWrite struct {
	Path       string
	Token      holdfast.Token
	Generation int64
}

// aliveDirectory has a node for each watcher, which goes with the watcher's session.
const aliveDirectory = "alive"

// startFiles begins the work of those who write and watch files. Writers of half of the processes use one member only.
func (c *clients) startFiles(ctx context.Context) {
	id := strings.ReplaceAll(c.Group, "/", "-")
	if c.Writes > 0 {
		addrs, members := strings.TrimPrefix(c.URL, "cell://"), 3
		if all := strings.Split(addrs, ","); c.Process%2 == 1 {
			addrs, members = all[c.Process%len(all)], 1
		}
		f, err := newFiler("the writer of "+id, addrs, members)
		if err != nil {
			panic(err)
		}
		c.work.Go(func() {
			defer f.cell.Close()
			c.write(ctx, f)
		})
	}
	if c.Watches {
		c.watcher = startWatcher(ctx, id, strings.TrimPrefix(c.URL, "cell://"), c.KeptTTL)
		c.files.Alive = c.watcher.node
		c.work.Go(func() {
			if err := c.watcher.follow(ctx, c.noteTold); ctx.Err() == nil {
				c.blame("P7: the watcher of %s is told nothing any more: %v", c.Group, err)
			}
		})
	}
}

// startWatcher opens a watcher and makes the node that goes with its session.
func startWatcher(ctx context.Context, id, addrs string, ttl time.Duration) *watcher {
	of, err := openCell(addrs)
	if err != nil {
		panic(err)
	}
	w := &watcher{cell: of, mark: watchedDirectory + "/mark-" + id, told: make(chan int64, 1)}
	if w.session, err = of.Open(ctx, cell.SessionOptions{TTL: ttl, Note: "a watcher"}); err != nil {
		panic(err)
	}
	if w.node, err = makeFile(ctx, of, aliveDirectory+"/"+id, w.session); err != nil {
		panic(err)
	}
	return w
}

// makeFile makes a file that nobody else makes, for as long as it takes.
func makeFile(ctx context.Context, of *cell.Client, path string, s *cell.Session) (n *cell.Node, err error) {
	for end := time.Now().Add(recoverWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if n, err = of.Put(ctx, path, nil, s, cell.If{Generation: new(int64)}); err == nil {
			return n, nil
		}
		if errors.Is(err, cell.ErrChanged) { // by a call that was not answered
			if n, err = of.Stat(ctx, path); err == nil {
				return n, nil
			}
		}
	}
	return n, err
}

// write works on the files of this time until ctx ends.
func (c *clients) write(ctx context.Context, f *filer) {
	for ctx.Err() == nil {
		c.filing.Lock()
		path := fmt.Sprintf("%s/%d-%d", watchedDirectory, c.epoch, rand.IntN(c.Writes))
		if op, asked := f.act(ctx, path); asked {
			c.mu.Lock()
			c.files.Ops = append(c.files.Ops, op)
			c.mu.Unlock()
		}
		c.filing.Unlock()
		time.Sleep(rand.N(200 * time.Millisecond))
	}
}

// nextFiles makes the writer go on with other files. It has ended what it did with those before.
func (c *clients) nextFiles() {
	c.filing.Lock()
	defer c.filing.Unlock()
	c.epoch++
}

func (c *clients) noteTold(w watched) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files.Told = append(c.files.Told, w)
}

// caughtUp waits until the watcher was told of all that has happened so far.
func (c *clients) caughtUp() {
	if c.watcher == nil {
		return
	}
	if err := c.watcher.caughtUp(context.Background()); err != nil {
		c.blame("P7: %v", err)
	}
}

// endWatcher closes the session of the watcher, with which its node goes.
func (c *clients) endWatcher() {
	if c.watcher == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recoverWithin)
	defer cancel()
	if err := c.watcher.session.Close(ctx); err != nil {
		c.blame("P9: closing the session of a watcher of %s: %v", c.Group, err)
	}
	c.watcher.cell.Close()
}

// writeFenced writes a file, if the hold of a sequencer stands.
func writeFenced(ctx context.Context, of *cell.Client, path, sequencer string, token holdfast.Token) (w fencedWrite, err error) {
	ctx, cancel := context.WithTimeout(ctx, answeredWithin)
	defer cancel()
	err = of.Do(ctx, false, func(ctx context.Context, m *cell.Member) error {
		ctx, info := connect.NewClientContext(ctx)
		info.RequestHeader().Set(fence.Header, sequencer)
		resp, err := m.Files.Put(ctx, &cellv1.PutRequest{Path: path, Contents: fmt.Append(nil, token)})
		if err == nil {
			w = fencedWrite{path, token, resp.Node.ContentGeneration}
		}
		return err
	})
	return w, err
}

// underLock writes a file under a lock.
func (c *clients) underLock(ctx context.Context, of *cell.Client, lease *holdfast.Lease) {
	w, err := writeFenced(ctx, of, "fenced/"+lease.Name(), lease.Sequencer(), lease.Token())
	if err == nil {
		c.mu.Lock()
		c.files.Fenced = append(c.files.Fenced, w)
		c.mu.Unlock()
	}
}

// afterLock tries to write a file under a lock that was given back.
func (c *clients) afterLock(ctx context.Context, of *cell.Client, lease *holdfast.Lease) {
	if w, err := writeFenced(ctx, of, "fenced/"+lease.Name(), lease.Sequencer(), lease.Token()); err == nil {
		c.blame("P4: a write under a lock that was given back is done: %+v", w)
	}
}
