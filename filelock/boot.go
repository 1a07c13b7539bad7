//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// The file "boot" tells which boot of the host the records are of, because
// times of another boot mean nothing, and when the epoch of tokens was.

const bootName = "boot"

// begin makes the records fit for this boot and reads the epoch. All processes
// that held anything before the boot are gone; what they left behind is closed or
// deleted, and the delays count from now.
func (s *store) begin(ctx context.Context, p *place, now driver.Instant) error {
	id, err := bootID()
	if err != nil {
		return fmt.Errorf("filelock: which boot of the host this is cannot be told: %w", err)
	}
	// Almost always the file tells this boot, and nothing is to be changed: a crowd that starts
	// together must not wait for each other.
	unlock, err := p.lockBoot(ctx, syscall.LOCK_SH)
	if err != nil {
		return err
	}
	then, err := readBoot(p.top)
	unlock()
	if err == nil && then.id == id {
		s.epoch = then.epoch
		return nil
	}
	if unlock, err = p.lockBoot(ctx, syscall.LOCK_EX); err != nil {
		return err
	}
	defer unlock()
	then, err = readBoot(p.top)
	switch {
	case err == nil && then.id == id:
		s.epoch = then.epoch
		return nil
	case err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged):
	default:
		return explain(err, "", p.top.at(bootName))
	}
	live, err := s.anybody()
	if err != nil {
		return explain(err, "", p.clients.path)
	}
	if live && then.id != "" {
		return s.otherBoot(then.id, id)
	}
	last, err := s.survey(p.names, !live, now)
	if err != nil {
		return err
	}
	// Tokens go on beyond all that can be known of: with a wall clock that
	// starts wrong, at least beyond those there are records of. The block is for a
	// hold of a release that did not write its block down.
	wall := time.Now()
	s.epoch = max(wall.UnixNano(), int64(last+tokenBlock)*int64(time.Microsecond), then.began+1) - int64(now)
	return explain(writeBoot(p.top, boot{id, s.epoch, s.epoch + int64(now)}), "", p.top.at(bootName))
}

// confirmBoot is called by a client once others see that it lives. A process that is shown another boot id
// may have found nobody alive since attach, and may have ended all holds (P1).
func (s *store) confirmBoot(ctx context.Context) error {
	p := s.place.Load()
	unlock, err := p.lockBoot(ctx, syscall.LOCK_SH)
	if err != nil {
		return err
	}
	then, err := readBoot(p.top)
	unlock()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) {
		return nil // a cleaner has deleted it: whoever begins next sees this client
	}
	id, idErr := bootID()
	if err = errors.Join(err, idErr); err == nil && then.id != id {
		return s.otherBoot(then.id, id)
	}
	return explain(err, "", p.top.at(bootName))
}

// lockBoot waits for the lock of the boot. A process that is stopped while it deletes a record does not have it.
func (p *place) lockBoot(ctx context.Context, how int) (unlock func(), err error) {
	var l fileLock
	if l.fd, err = p.openLock(bootingName); err != nil {
		return nil, err
	}
	if err := l.lock(ctx, how, 5*time.Second); err != nil {
		closeFD(l.fd)
		return nil, fmt.Errorf("%s: %w", p.top.path, err)
	}
	return func() { closeFD(l.fd) }, nil
}

func (s *store) otherBoot(then, now string) error {
	return fmt.Errorf("%s is in use on another boot (%s, this is %s): the processes run on different hosts, or in containers that are shown different boot ids", s.dir, then, now)
}

// boot is the content of the file.
type boot struct {
	id    string
	epoch int64 // nanoseconds; see store.token
	began int64 // the epoch plus the store's time when it was written
}

// readBoot returns errDamaged for what a power cut may have left.
func readBoot(top *folder) (b boot, err error) {
	text, err := top.read(bootName)
	if err != nil {
		return b, err
	}
	if !blank(text) && !ownText(text) {
		return b, errForeign
	}
	return parseBoot(string(text))
}

func parseBoot(text string) (b boot, err error) {
	n, _ := fmt.Sscanf(text, "holdfast1 boot %q epoch %d began %d\n", &b.id, &b.epoch, &b.began)
	if n != 3 || b.String() != text {
		return boot{}, errDamaged
	}
	return b, nil
}

func (b boot) String() string {
	return fmt.Sprintf("holdfast1 boot %q epoch %d began %d\n", b.id, b.epoch, b.began)
}

// writeBoot expects the file to be ours, if there is one, and the boot to be
// locked. It writes in place: in a directory with the sticky bit only its owner
// could replace the file. One that has a name elsewhere too is replaced.
func writeBoot(top *folder, b boot) error {
	text := []byte(b.String())
	fd, st, err := top.openRegular(bootName, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) {
		return top.publish(bootName, text, false)
	}
	if err != nil {
		return err
	}
	defer closeFD(fd)
	if top.checkLinks(bootName, &st) != nil {
		if err := top.root.Remove(bootName); err != nil {
			return err
		}
		return top.publish(bootName, text, false)
	}
	top.tighten(fd, fs.FileMode(st.Mode)&0o777)
	if err := pwrite(fd, text, 0); err != nil {
		return err
	}
	return syscall.Ftruncate(fd, int64(len(text)))
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
func (s *store) survey(names *folder, reset bool, now driver.Instant) (last driver.Token, err error) {
	files, err := names.names()
	if err != nil {
		return 0, explain(err, "", names.path)
	}
	for _, name := range files {
		if !strings.HasSuffix(name, suffix) {
			if reset && names.proveRecord(name) == nil {
				names.root.Remove(name) // left by an operation that was cut short
			}
			continue
		}
		f, err := openRecord(names, name, os.O_RDWR, nil)
		if errors.Is(err, errForeign) {
			continue // its name tells whoever uses it
		}
		if err != nil {
			return 0, err
		}
		token, err := f.survey(reset, now)
		f.close()
		if err != nil && !errors.Is(err, errDamaged) {
			return 0, explain(err, "", f.path)
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
			if err = f.in.proveRecord(f.name); err == nil {
				err = f.in.root.Remove(f.name)
			}
		}
		if errors.Is(err, errForeign) {
			err = errDamaged
		}
		return 0, err
	}
	f.tighten()
	if reset {
		st.reboot(now)
		if st.idle() {
			return st.last, f.in.root.Remove(f.name)
		}
		return st.last, f.store(appendState(nil, st))
	}
	return st.last, nil
}

// reboot closes what was held for its lock-delay or its minimum hold, counted from
// now, and drops the rest. What was closed already stays so for its delay in full:
// how much of it has passed is not known.
func (s *state) reboot(now driver.Instant) {
	kept := s.Holds[:0]
	for _, h := range s.Holds {
		delay := h.LockDelay
		if !h.Claim {
			delay = max(delay, h.MinHold)
		}
		if delay > 0 {
			h.Closed, h.Owner, h.Client, h.Expires = true, "", "", now.Add(delay)
			kept = append(kept, h)
		}
	}
	s.Holds, s.Queue, s.rest, s.Unloaded, s.broken = kept, nil, nil, 0, nil
}
