//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sqllock

import (
	"context"
	"sync"
	"syscall"
	"time"
)

// writerFile is an empty file beside a SQLite file, FILE-writers, whose lock the processes take in
// turn before they write. A process that has to wait sleeps in the system call, so two hundred of
// them cost no processor. The lock only spares them SQLite's own, for which each would have to ask
// again and again; safety does not depend on it. So a writer goes on without it if the file cannot be
// used, or if the process that has the lock is stopped (P7).
//
// It is a lock of fcntl, because the system tells which process has it.
type writerFile struct {
	database string // the path of the SQLite file

	mu     sync.Mutex
	fd     int           // -1: it is not open
	broken bool          // it cannot be opened
	closed bool          // nobody needs it any more
	asked  chan struct{} // of the system call that waits; closed when it is over. nil: there is none
	since  time.Time     // when that call began, or holder was read
	holder int32         // the process that had the lock then
	stuck  bool          // it has had the lock for too long
	wanted bool          // a writer waits for that call
	got    bool          // the call has taken the lock for that writer
}

// writerPatience is for how long one process may have the lock before those who wait take it for stuck,
// and write without it: half of the usual poll.
const writerPatience = 500 * time.Millisecond

// writerSuffix is appended to the path of a SQLite file.
const writerSuffix = "-writers"

// newWriterFile returns the file beside a SQLite file. It is opened when it is first needed.
func newWriterFile(database string) *writerFile { return &writerFile{database: database, fd: -1} }

// lock waits until no other process writes, and reports whether it had to wait, and whether it has
// the lock. One writer of this process calls it at a time.
func (f *writerFile) lock(ctx context.Context) (waited, locked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked == nil {
		if !f.openLocked() {
			return false, false
		}
		if f.try() {
			return false, true
		}
		f.asked, f.since, f.holder = make(chan struct{}), time.Now(), f.holds()
		go f.ask()
	}
	f.wanted = true
	for f.asked != nil && ctx.Err() == nil && !f.stuckLocked() {
		asked, left := f.asked, time.Until(f.since.Add(writerPatience))
		f.mu.Unlock()
		timer := time.NewTimer(left)
		select {
		case <-asked:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		f.mu.Lock()
	}
	locked, f.got, f.wanted = f.got, false, false
	return true, locked
}

// stuckLocked reports whether one process has had the lock for too long, or has it still. Where it
// is only quick to take it again this writer goes on too: it asks SQLite.
func (f *writerFile) stuckLocked() bool {
	if !f.stuck && time.Since(f.since) >= writerPatience {
		before := f.holder
		f.since, f.holder = time.Now(), f.holds()
		f.stuck = f.holder == before
	}
	return f.stuck
}

// ask takes the lock for a writer that waits. If nobody does any more it gives the lock back.
func (f *writerFile) ask() {
	err := f.control(syscall.F_SETLKW, syscall.F_WRLCK)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.got = err == nil && f.wanted; err == nil && !f.got {
		f.unlockLocked()
	}
	close(f.asked)
	f.asked, f.stuck = nil, false
	f.closeLocked()
}

// try takes the lock if no other process has it.
func (f *writerFile) try() bool { return f.control(syscall.F_SETLK, syscall.F_WRLCK) == nil }

// unlock gives back what lock has taken.
func (f *writerFile) unlock() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unlockLocked()
}

func (f *writerFile) unlockLocked() {
	if f.fd >= 0 { // else the client was closed meanwhile
		f.control(syscall.F_SETLK, syscall.F_UNLCK)
	}
}

// holds returns the process that has the lock.
func (f *writerFile) holds() int32 {
	l := syscall.Flock_t{Type: syscall.F_WRLCK}
	if syscall.FcntlFlock(uintptr(f.fd), syscall.F_GETLK, &l) != nil || l.Type == syscall.F_UNLCK {
		return -1
	}
	return l.Pid
}

// control is the system call, without the interruptions.
func (f *writerFile) control(command int, kind int16) error {
	for {
		if err := syscall.FcntlFlock(uintptr(f.fd), command, &syscall.Flock_t{Type: kind}); err != syscall.EINTR {
			return err
		}
	}
}

// close closes the file, as soon as no system call waits for its lock.
func (f *writerFile) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.closeLocked()
}

func (f *writerFile) closeLocked() {
	if f.closed && f.asked == nil && f.fd >= 0 {
		syscall.Close(f.fd)
		f.fd = -1
	}
}

// openLocked opens the file, and makes it with the mode and owner of the SQLite file if it is missing.
// It follows no link, and takes no file that has another name: others may be allowed to write in the
// directory.
func (f *writerFile) openLocked() bool {
	if f.fd >= 0 || f.broken || f.closed {
		return f.fd >= 0
	}
	const flags = syscall.O_RDWR | syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_CLOEXEC
	var database, st syscall.Stat_t
	f.broken = true // unless all goes well
	if syscall.Stat(f.database, &database) != nil {
		return false
	}
	fd, err := syscall.Open(f.database+writerSuffix, flags|syscall.O_CREAT|syscall.O_EXCL, 0o600)
	if err == nil {
		syscall.Fchown(fd, int(database.Uid), int(database.Gid)) // as SQLite does with its own; only root can
		syscall.Fchmod(fd, uint32(database.Mode)&0o666)
	} else if fd, err = syscall.Open(f.database+writerSuffix, flags, 0); err != nil {
		return false
	}
	if syscall.Fstat(fd, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Nlink != 1 {
		syscall.Close(fd)
		return false
	}
	f.fd, f.broken = fd, false
	return true
}
