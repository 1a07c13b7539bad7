//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package sqllock

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"
)

// writerFile is a small file beside a SQLite file, FILE-writers, whose flock the processes take in
// turn before they write. A process that has to wait sleeps in the system call, so two hundred of
// them cost no processor. The lock only spares them SQLite's own, for which each would have to ask
// again and again; safety does not depend on it. So a writer goes on without it if the file cannot be
// used, or if the process that has the lock is stopped (P7). To be told from a queue that is slow,
// each that gets the lock writes a number of its own into the file.
type writerFile struct {
	database string // the path of the SQLite file

	mu     sync.Mutex
	fd     int           // -1: it is not open
	broken bool          // it cannot be opened
	closed bool          // nobody needs it any more
	asked  chan struct{} // of the system call that waits; closed when it is over. nil: there is none
	since  time.Time     // when that call began, or the number in the file was seen to change
	number uint64        // that in the file
	wanted bool          // a writer waits for that call
	got    bool          // the call has taken the lock for that writer
}

// writerPatience is how long the lock may stay with one process before others take it for stuck, and
// write without it: half of the usual poll.
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
		if flock(f.fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			f.mark()
			return false, true
		}
		f.asked, f.since, f.number = make(chan struct{}), time.Now(), f.read()
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

// stuckLocked reports whether the lock has not changed hands for too long.
func (f *writerFile) stuckLocked() bool {
	if time.Since(f.since) < writerPatience {
		return false
	}
	number := f.read()
	if number == f.number {
		return true
	}
	f.since, f.number = time.Now(), number
	return false
}

// ask takes the lock for a writer that waits. If nobody does any more it gives the lock back.
func (f *writerFile) ask() {
	err := flock(f.fd, syscall.LOCK_EX)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.got = err == nil && f.wanted; f.got {
		f.mark()
	} else if err == nil {
		f.unlock()
	}
	close(f.asked)
	f.asked = nil
	f.closeLocked()
}

// mark tells the others that the lock has changed hands.
func (f *writerFile) mark() {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], rand.Uint64())
	syscall.Pwrite(f.fd, b[:], 0) // if it fails, others lose their patience sooner
}

func (f *writerFile) read() uint64 {
	var b [8]byte
	syscall.Pread(f.fd, b[:], 0)
	return binary.NativeEndian.Uint64(b[:])
}

func (f *writerFile) unlock() { flock(f.fd, syscall.LOCK_UN) }

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

// flock is the system call, without the interruptions.
func flock(fd, how int) error {
	for {
		if err := syscall.Flock(fd, how); err != syscall.EINTR {
			return err
		}
	}
}
