//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// An operation holds the flock of the record file itself. That file can be replaced
// (steal) or deleted (remove), so an operation that has changed it checks afterwards
// whether the path still leads to it (current), and starts over if it does not.

// stuckAfter is how long a record may stay locked without a change before
// others take it for stuck. An operation takes microseconds; this much is a process
// that was stopped in the middle of one. Shorter than a poll, so that it delays
// others no more than any stopped waiter (P7).
const stuckAfter = poll / 2

// longestPause is the longest one between two attempts to lock a record; for a long one, which many
// wait for, it is longer.
const longestPause = 16 * time.Millisecond

// lock locks the file of a record, which the stripe keeps open, and reads it. It
// returns nil if there is no file.
func (s *store) lock(ctx context.Context, p *stripe, names *folder, name string, buf *buffers) (*file, error) {
	for {
		if p.open == nil || p.open.name != name {
			p.drop()
			f, err := openRecord(names, name, os.O_RDWR, nil)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			f.ours, p.open = p.page, f
		}
		f := p.open
		f.page = buf.page
		stolen, err := s.await(ctx, f)
		if err == nil && !stolen {
			if err = f.load(); err == nil {
				f.tighten()
				return f, nil
			}
			err = explain(err, "", f.path)
		}
		p.drop()
		if err != nil {
			return nil, err
		}
	}
}

// openRecord opens a record file.
func openRecord(names *folder, name string, flags int, page []byte) (*file, error) {
	fd, st, err := names.openRegular(name, flags)
	if err == nil {
		if err = names.checkLinks(name, &st); err != nil {
			closeFD(fd)
		}
	}
	if err != nil {
		return nil, explain(err, "", names.at(name))
	}
	return &file{fd: fd, in: names, name: name, path: names.at(name), id: idOf(&st), mode: fs.FileMode(st.Mode) & 0o777, page: page}, nil
}

// tighten is that of the folder, for a file that is known to be a record.
func (f *file) tighten() {
	f.in.tighten(f.fd, f.mode)
	f.mode &= fileMode(f.in.mode)
}

// await locks the file. It asks again and again instead of blocking: so it can
// be cancelled, takes no thread, and notices a lock that is stuck. It reports
// true when it took the record away from there.
//
// Suppose two hundred processes want the lock, and the one that has it loses its processor. If
// the others asked each millisecond, they would keep it from getting one. So they ask less and less
// often, and not in step.
func (s *store) await(ctx context.Context, f *file) (stolen bool, err error) {
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
			} else if stolen, err := s.steal(f); stolen || err != nil {
				return stolen, err
			}
		}
	}
}

// readHeader reads the header without the lock.
func (f *file) readHeader() header {
	var b [headerLen]byte
	if n, err := pread(f.fd, b[:], 0); err != nil || n < headerLen {
		return header{}
	}
	h, _ := parseHeader(b[:])
	return h
}

// steal moves a record out of a file whose lock is stuck: the holder of the
// flock is stopped, and would close the name to everybody until it goes on. A
// new file takes the path, and whoever locks it reads the old one (inherit). If the
// stopped process has made its change before the path led elsewhere, the change is
// in what is read; if not, it finds that out and starts over. No time plays a part in
// that: each attempt may have met the lock of another process, which is not stuck.
//
// It reports false where it must not be done: while another changes paths, and
// when the stopped process has not filled its own file yet. Then the name waits for
// that process: two had to be stopped within microseconds of work.
func (s *store) steal(f *file) (stolen bool, err error) {
	if !s.paths.tryLock() {
		return false, nil
	}
	defer s.paths.unlock()
	if ok, err := f.current(); !ok || err != nil {
		return !ok, err
	}
	if f.load() != nil || f.head.state == moving {
		return false, nil // or else it changes just now, and is not stuck
	}
	temp, err := f.in.prepare(appendHeader(nil, textStart, moving, nil), false)
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

// oldSuffix is appended to the path of a record for the file it is moved from.
const oldSuffix = ".old"

// inherit fills a file that has taken the place of another. The file is locked. The
// other one stays until the next move, or as long as the record: only under the lock of
// the paths it is certain that nobody needs it.
func (f *file) inherit() (*state, error) {
	st, err := f.in.readRecord(context.Background(), f.name+oldSuffix, nil, parseAll)
	if err == nil {
		err = f.store(appendState(nil, st))
	}
	if err != nil {
		return nil, err
	}
	f.known = st
	return st, nil
}

// removeOld deletes the file that a record was moved from. The paths are locked, and the
// record has its text.
func (f *file) removeOld() {
	if old := f.name + oldSuffix; f.in.proveRecord(old) == nil {
		f.in.root.Remove(old)
	}
}

// remove deletes the file, which is locked and idle. It reports false when that
// must wait.
func (s *store) remove(f *file) bool {
	if !s.paths.tryLock() {
		return false
	}
	defer s.paths.unlock()
	if ok, err := f.current(); !ok || err != nil {
		return false
	}
	f.removeOld()
	return f.in.root.Remove(f.name) == nil
}

// errReplaced says that the directory has been deleted, or moved away, while it
// was in use.
var errReplaced = errors.New("the directory was deleted or replaced while it was in use: close the client and open another")

// current reports whether the path leads to this file. Suppose somebody moves the
// directory away and makes another: a client that went on in the old one would
// hold names that others hold in the new one (P1).
func (f *file) current() (bool, error) {
	var there syscall.Stat_t
	err := syscall.Lstat(f.path, &there)
	if err == nil && f.id == idOf(&there) {
		return true, nil
	}
	if err != nil && err != syscall.ENOENT && err != syscall.ENOTDIR {
		return false, err
	}
	here, err := f.in.lstat(f.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil && f.id == idOf(here):
		// Or it has come back since the first Lstat.
		if err := syscall.Lstat(f.path, &there); err == nil && f.id == idOf(&there) {
			return true, nil
		}
		return false, errReplaced
	}
	return false, err
}

// fileID tells files apart. It is not used again while the file is open.
type fileID struct{ dev, ino uint64 }

func idOf(st *syscall.Stat_t) fileID { return fileID{uint64(st.Dev), uint64(st.Ino)} }

func (f *file) unlock() { flock(f.fd, syscall.LOCK_UN) }

func (f *file) close() { closeFD(f.fd) }

// fileLock is the flock of a file of the directory. There are two.
//
// That of the paths is held by whoever makes the path of a record lead elsewhere or
// nowhere. Without it a thief and a deleter, or two thieves, could each act on
// what the other has just replaced, for no call renames or unlinks a path only
// if it leads to a certain file. A stopped process may hold it for long, so
// nobody needs it for more than moving and cleaning.
//
// That of the boot is held by whoever makes the records fit for a boot of the host. New clients wait for it.
type fileLock struct {
	mu sync.Mutex
	fd int
}

func (p *fileLock) tryLock() bool { return p.try(syscall.LOCK_EX) }

func (p *fileLock) try(how int) bool {
	if !p.mu.TryLock() {
		return false
	}
	var st syscall.Stat_t
	if flock(p.fd, how|syscall.LOCK_NB) == nil {
		if syscall.Fstat(p.fd, &st) == nil && st.Nlink > 0 {
			return true
		}
		flock(p.fd, syscall.LOCK_UN) // the file was deleted: others lock another one
	}
	p.mu.Unlock()
	return false
}

// lock waits for the lock, for at most d. With syscall.LOCK_SH it keeps away those only who would
// change something.
func (p *fileLock) lock(ctx context.Context, how int, d time.Duration) error {
	for end := time.Now().Add(d); !p.try(how); time.Sleep(time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("its lock file has been locked for %v: a process that uses the directory is stopped", d)
		}
	}
	return nil
}

func (p *fileLock) unlock() {
	flock(p.fd, syscall.LOCK_UN)
	p.mu.Unlock()
}

// flock is the system call, without the interruptions.
func flock(fd, how int) error {
	for {
		if err := syscall.Flock(fd, how); err != syscall.EINTR {
			return err
		}
	}
}

func closeFD(fd int) { syscall.Close(fd) }
