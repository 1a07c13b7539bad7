//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// The file "boot" tells which boot of the host the records are of, because
// times of another boot mean nothing, and when the epoch of tokens was.

// begin makes the directory fit for this boot and reads the epoch. All
// processes that held anything before the boot are gone; what they left behind
// is closed or deleted, and the delays count from now.
func (s *store) begin(now driver.Instant) error {
	id, err := bootID()
	if err != nil {
		return fmt.Errorf("filelock: which boot of the host this is cannot be told: %w", err)
	}
	if err := s.paths.lock(5 * time.Second); err != nil {
		return fmt.Errorf("%s: %w", s.dir, err)
	}
	defer s.paths.unlock()
	path := filepath.Join(s.dir, "boot")
	then, err := readBoot(path)
	switch {
	case err == nil && then.id == id:
		s.epoch = then.epoch
		return nil
	case err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged):
	default:
		return explain(err, "", path)
	}
	live, err := s.anybody()
	if err != nil {
		return explain(err, "", s.clients)
	}
	if live && then.id != "" {
		return fmt.Errorf("%s is in use on another boot (%s, this is %s): the processes run on different hosts, or in containers that are shown different boot ids", s.dir, then.id, id)
	}
	last, err := s.survey(!live, now)
	if err != nil {
		return err
	}
	// Tokens go on beyond all that can be known of: with a wall clock that
	// starts wrong, at least beyond those there are records of.
	wall := time.Now()
	s.epoch = max(wall.UnixNano(), int64(last+tokenBlock)*int64(time.Microsecond), then.began+1) - int64(now)
	return s.writeBoot(path, boot{id, s.epoch, s.epoch + int64(now)})
}

// boot is the content of the file.
type boot struct {
	id    string
	epoch int64 // nanoseconds; see store.token
	began int64 // the epoch plus the store's time when it was written
}

func readBoot(path string) (b boot, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return b, err
	}
	n, _ := fmt.Sscanf(string(text), "holdfast1 boot %q epoch %d began %d\n", &b.id, &b.epoch, &b.began)
	if n != 3 || b.String() != string(text) {
		return boot{}, errDamaged
	}
	return b, nil
}

func (b boot) String() string {
	return fmt.Sprintf("holdfast1 boot %q epoch %d began %d\n", b.id, b.epoch, b.began)
}

func (s *store) writeBoot(path string, b boot) error {
	temp, fd, err := s.temporary()
	if err != nil {
		return explain(err, "", temp)
	}
	defer os.Remove(temp)
	defer closeFD(fd)
	if err := pwrite(fd, []byte(b.String()), 0); err != nil {
		return explain(err, "", path)
	}
	return explain(os.Rename(temp, path), "", path)
}

// anybody reports whether any client of another process is alive.
func (s *store) anybody() (bool, error) {
	ids, err := s.others()
	for _, id := range ids {
		if s.alive(id) {
			return true, nil
		}
	}
	return false, err
}

// survey returns the highest token of all records. With reset it also makes
// each as after a reboot, and deletes those that cannot be read: a power cut
// tears files, and no process of theirs is left.
func (s *store) survey(reset bool, now driver.Instant) (last driver.Token, err error) {
	files, err := s.files()
	if err != nil {
		return 0, err
	}
	for _, name := range files {
		path := filepath.Join(s.names, name)
		if !strings.HasSuffix(name, suffix) {
			if reset {
				os.Remove(path) // left by a turn that was cut short
			}
			continue
		}
		fd, err := openFD(path, os.O_RDWR, 0)
		if err != nil {
			return 0, explain(err, "", path)
		}
		f := &file{fd: fd, path: path}
		token, err := f.survey(reset, now)
		f.close()
		if err != nil && !errors.Is(err, errDamaged) {
			return 0, explain(err, "", path)
		}
		last = max(last, token)
	}
	return last, nil
}

func (f *file) survey(reset bool, now driver.Instant) (driver.Token, error) {
	err := f.load()
	var st *state
	if err == nil && f.head.state == settled {
		st, err = f.state("")
	}
	if err != nil || st == nil {
		if reset && (err == nil || errors.Is(err, errDamaged)) {
			err = os.Remove(f.path)
		}
		return 0, err
	}
	if reset {
		st.reboot(now)
		if st.idle() {
			return st.last, os.Remove(f.path)
		}
		return st.last, f.store(appendState(nil, st))
	}
	return st.last, nil
}

// reboot closes what was held for its lock-delay, counted from now, and drops
// the rest. What was closed already stays so for its delay in full, for how
// much of it has passed is not known.
func (s *state) reboot(now driver.Instant) {
	kept := s.Holds[:0]
	for _, h := range s.Holds {
		delay := h.LockDelay
		if h.Closed {
			delay = max(delay, h.MinHold)
		}
		if delay > 0 {
			h.Closed, h.Owner, h.Client, h.Expires = true, "", "", now.Add(delay)
			kept = append(kept, h)
		}
	}
	s.Holds, s.Queue, s.broken = kept, nil, nil
}

// cleanUp does for a client that was killed what it would have done when it
// closed: it deletes its idle records, all that are idle now, and then its
// file.
func (c *client) cleanUp() {
	ids, _ := c.store.others()
	var dead []string
	for _, id := range ids {
		if !c.store.alive(id) {
			dead = append(dead, id)
		}
	}
	if len(dead) == 0 {
		return
	}
	files, _ := c.store.files()
	for _, file := range files {
		path := filepath.Join(c.store.names, file)
		if info, err := os.Lstat(path); err == nil && strings.HasSuffix(file, ".tmp") && time.Since(info.ModTime()) > time.Minute {
			os.Remove(path)
		}
		name, err := nameOf(file)
		if err == errHashed {
			name = c.store.peekName(path)
		}
		if name != "" {
			c.clean(name)
		}
	}
	for _, id := range dead {
		os.Remove(filepath.Join(c.store.clients, id))
	}
}
