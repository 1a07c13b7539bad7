//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
)

// leftFor is how old a file must be to count as left behind by a process that
// was killed while it made it.
const leftFor = time.Minute

// sample is how many other clients a new one looks at. If one of them is dead, it looks at all.
// Suppose a thousand start together: they must not all look at each other.
const sample = 16

// cleanUp does for a client that was killed what it would have done when it
// closed: it deletes its idle records, all that are idle now, and then its
// file. It deletes nothing that is not provably ours. When the client is closed
// meanwhile, the next one does the rest.
func (c *client) cleanUp() {
	p := c.store.place.Load()
	ids, _ := c.store.others()
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var dead []string
	for i, id := range ids {
		if i == sample && dead == nil {
			break
		}
		if !c.store.alive(id) && p.clients.proveLife(id) == nil {
			dead = append(dead, id)
		}
	}
	if len(dead) == 0 {
		return
	}
	p.top.cleanTemporary()
	p.names.cleanTemporary()
	p.clients.cleanUnborn()
	files, _ := p.names.names()
	for _, file := range files {
		name, err := nameOf(file)
		if err == errHashed {
			name = p.names.readName(file)
		}
		if name == "" {
			continue
		}
		leave, err := c.enter(context.Background())
		if err != nil {
			return
		}
		c.clean(name)
		leave()
	}
	for _, id := range dead {
		p.clients.root.Remove(id)
	}
}

// cleanTemporary deletes the temporary files that were left behind.
func (d *folder) cleanTemporary() {
	names, _ := d.names()
	for _, name := range names {
		if isTemporary(name) && d.old(name) && d.proveTemporary(name) == nil {
			d.root.Remove(name)
		}
	}
}

// cleanUnborn deletes the files of clients that were killed before they had
// their names.
func (d *folder) cleanUnborn() {
	names, _ := d.names()
	for _, name := range names {
		if strings.HasSuffix(name, newSuffix) && d.old(name) && d.proveLife(name) == nil {
			d.root.Remove(name)
		}
	}
}

// old reports whether a file was not changed for leftFor.
func (d *folder) old(name string) bool {
	info, err := d.root.Lstat(name)
	return err == nil && time.Since(info.ModTime()) > leftFor
}
