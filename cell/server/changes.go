package server

// changes remembers when names have changed, and who waits for a change of one.
type changes struct {
	waiting map[string]*change
	// idle are the names that nobody uses any more, with the revision at which that began. Before
	// the revision forgotten names may have become idle that are not among them.
	idle      map[string]int64
	forgotten int64
}

// change is the next change of a name.
type change struct {
	happened chan struct{} // closed when it has
	watchers int
}

// mostIdle is how many idle names are remembered.
const mostIdle = 10_000

// noteLocked takes in that a name has changed.
func (c *changes) noteLocked(name string, rev int64) {
	if next := c.waiting[name]; next != nil {
		close(next.happened)
		delete(c.waiting, name)
	}
	delete(c.idle, name)
}

// idleLocked takes in that nobody uses a name any more.
func (c *changes) idleLocked(name string, rev int64) {
	if c.idle == nil || len(c.idle) >= mostIdle {
		for _, was := range c.idle {
			c.forgotten = max(c.forgotten, was)
		}
		c.idle = map[string]int64{}
	}
	c.idle[name] = rev
}

// missedLocked takes in that what has happened up to a revision is not known: any name may have changed.
func (c *changes) missedLocked(rev int64) {
	for _, next := range c.waiting {
		close(next.happened)
	}
	c.waiting, c.idle, c.forgotten = nil, nil, max(c.forgotten, rev)
}

// changed reports whether a name has changed after a revision, as far as the mirror has come: that is
// the revision which it returns. If not, it returns the next change, which leave ends the wait for.
func (m *mirror) changed(text string, since int64) (next *change, rev int64, changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.changes
	if n := m.nameLocked(text); n != nil {
		changed = n.rev > since
	} else if at, known := c.idle[text]; known {
		changed = at > since
	} else {
		changed = since < c.forgotten
	}
	if changed || since == 0 {
		return nil, m.rev, true
	}
	if next = c.waiting[text]; next == nil {
		next = &change{happened: make(chan struct{})}
		if c.waiting == nil {
			c.waiting = map[string]*change{}
		}
		c.waiting[text] = next
	}
	next.watchers++
	return next, m.rev, false
}

// leave ends a wait for a change that has not happened.
func (m *mirror) leave(text string, next *change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if next.watchers--; next.watchers == 0 && m.changes.waiting[text] == next {
		delete(m.changes.waiting, text)
	}
}
