//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"syscall"
	"time"
)

// An operation holds the flock of the record file itself. That file can be replaced (steal) or
// deleted (remove), so an operation that has changed it checks afterwards whether the path still
// leads to it (current), and starts over if it does not.

// stuckAfter is how long a record may stay locked without a change before others take it for stuck.
// An operation takes microseconds; this much is a process that was stopped in the middle of one.
// Shorter than a poll, so that it delays others no more than any stopped waiter (P7).
const stuckAfter = poll / 2

// longestPause is the longest one between two attempts to lock a record. For a long one, which many
// wait for, it is longer.
const longestPause = 16 * time.Millisecond

// lock locks the file of a record, which the stripe keeps open, and reads it. It returns nil if there
// is no file.
func (s *store) lock(ctx context.Context, p *stripe, name string, m *memory) (*file, error) {
	for {
		if p.open == nil || p.name != name {
			p.drop()
			f, err := openRecord(s.place.Load().names, fileName(name), os.O_RDWR)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			p.open, p.name = f, name
		}
		f := p.open
		stolen, err := s.await(ctx, f, m)
		if err == nil && !stolen {
			err = explain(f.load(m), "", f.path)
		}
		if err == nil && !stolen {
			return f, nil
		}
		if p.drop(); err != nil {
			return nil, err
		}
	}
}

// await locks the file. It asks again and again instead of blocking: so it can be cancelled, takes no
// thread, and notices a lock that is stuck. It reports true when it took the record away from there.
//
// Two hundred processes may want the lock while the one that has it has lost its processor. Asking
// each millisecond they would keep it from getting one. So they ask less and less often, and not in
// step.
func (s *store) await(ctx context.Context, f *file, m *memory) (stolen bool, err error) {
	var since time.Time
	var seen header
	pause := 20 * time.Microsecond
	for i := 0; ; i++ {
		if err := flock(f.fd, syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EWOULDBLOCK {
			return false, err
		}
		if i < 10 {
			runtime.Gosched() // most operations are over by then
			continue
		}
		time.Sleep(pause/2 + rand.N(pause))
		pause = min(2*pause, longestPause*time.Duration(1+seen.length/8192))
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if i == 10 {
			since, seen = time.Now(), f.readHeader()
		} else if time.Since(since) > stuckAfter {
			if now := f.readHeader(); now != seen {
				since, seen = time.Now(), now // slow, not stuck
			} else if stolen, err := s.place.Load().steal(f, m); stolen || err != nil {
				return stolen, err
			}
		}
	}
}

// readHeader reads the header without the lock.
func (f *file) readHeader() header {
	var b [headerLen]byte
	n, _ := pread(f.fd, b[:], 0)
	h, _ := parseHeader(b[:n])
	return h
}

// steal moves a record out of a file whose lock is stuck: the holder of the flock is stopped, and
// would close the name to everybody until it goes on. A new file takes the path, and the next one who
// locks that file reads the old one (store.read). A change that the stopped process made before the path
// led elsewhere is in what is read. One that it makes later does not count: it notices (current), and
// starts over. No time plays a part in that: each attempt may have met the lock of another process,
// which is not stuck.
//
// It reports false where it must not be done: while another changes paths, and when the stopped
// process has not filled its own file yet. Then the name waits for that process: two had to be stopped
// within microseconds of work.
func (p *place) steal(f *file, m *memory) (stolen bool, err error) {
	unlock, ok := p.lockPaths()
	if !ok {
		return false, nil
	}
	defer unlock()
	if ok, err := f.current(); !ok || err != nil {
		return !ok, err
	}
	if f.load(m) != nil || f.head.state == moving {
		return false, nil // or else it changes just now, and is not stuck
	}
	temp, err := f.in.prepare(appendHeader(nil, moving, textStart, nil))
	if err == nil {
		f.removeOld() // of an earlier move
		if err = f.in.root.Link(f.name, f.name+oldSuffix); err == nil {
			err = f.in.root.Rename(temp, f.name)
		}
		if err != nil {
			f.in.root.Remove(temp)
		}
	}
	return err == nil, explain(err, "", f.path)
}

// removeOld deletes the file that a record was moved from. It stays until the next move, or as long as the
// record: only under the lock of the paths it is certain that nobody needs it. They are locked, and the
// record has its text.
func (f *file) removeOld() {
	if old := f.name + oldSuffix; f.in.proveRecord(old) == nil {
		f.in.root.Remove(old)
	}
}

// remove deletes the file, which is locked, and idle or damaged. It reports false when that must wait.
func (p *place) remove(f *file) bool {
	unlock, ok := p.lockPaths()
	if !ok {
		return false
	}
	defer unlock()
	if ok, err := f.current(); !ok || err != nil {
		return false
	}
	f.removeOld()
	return f.in.root.Remove(f.name) == nil
}

// errReplaced says that the directory has been deleted, or moved away, while it was in use.
var errReplaced = errors.New("the directory was deleted or replaced while it was in use: close the client and open another")

// current reports whether the path leads to this file. Somebody may have moved the directory away and
// made another. A client that went on in the old one would hold names that others hold in the new one
// (P1).
func (f *file) current() (bool, error) {
	var there syscall.Stat_t
	switch err := syscall.Lstat(f.path, &there); {
	case err == nil && f.id == idOf(&there):
		return true, nil
	case err != nil && err != syscall.ENOENT && err != syscall.ENOTDIR:
		return false, err
	}
	if syscall.Lstat(f.in.path, &there) != nil || f.in.id != idOf(&there) {
		return false, errReplaced
	}
	return false, nil
}

// fileID tells files apart. It is not used again while the file is open.
type fileID struct{ dev, ino uint64 }

func idOf(st *syscall.Stat_t) fileID { return fileID{uint64(st.Dev), uint64(st.Ino)} }

func (f *file) unlock() { flock(f.fd, syscall.LOCK_UN) }

// lockPaths takes the flock of a file of the directory, and reports false where it cannot. It is
// held by whoever makes the path of a record lead elsewhere or nowhere. Without it a thief and a deleter,
// or two thieves, could each act on what the other has just replaced, for no call renames or unlinks a
// path only if it leads to a certain file. A stopped process may hold it for long, so nobody needs it for
// more than moving and cleaning.
func (p *place) lockPaths() (unlock func(), ok bool) {
	fd, st, err := p.top.openRegular(lockName, os.O_RDWR)
	if errors.Is(err, fs.ErrNotExist) && p.top.publish(lockName, nil) == nil {
		fd, st, err = p.top.openRegular(lockName, os.O_RDWR)
	}
	if err != nil {
		return nil, false
	}
	// Ours is empty. If it was deleted since, others lock another one.
	if st.Size == 0 && flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil && syscall.Fstat(fd, &st) == nil && st.Nlink > 0 {
		return func() { closeFD(fd) }, true
	}
	closeFD(fd)
	return nil, false
}

// flock is the system call, without the interruptions.
func flock(fd, how int) error {
	for {
		if err := syscall.Flock(fd, how); err != syscall.EINTR {
			return err
		}
	}
}
