//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/internal/record"
)

// A record file begins with a header of 24 bytes: the magic, a state, the end of the line, and where
// the record's text stands, how long it is, and the CRC-32C over the header up to there and the text.
// A process that is killed at any point of a change, or finds the disk full, leaves either the old
// record or the new one (P1, P3):
//
//   - A record that fits into the first page of the file is written there, header and text, with one
//     call. The kernel copies what lies in one page, on both sides, in one step, which no signal
//     interrupts.
//   - The text of a longer one is written beside the old one, and then the header.
//
// The text in force is always checked, so damage is never taken for an older state. Writing in place,
// unlike a rename, also costs no I/O: ext4 flushes a file that replaces another.
const (
	magic     = "holdfast1 "
	headerLen = len(magic) + 2 + 3*4
	textStart = 32   // of the first text
	pageSize  = 4096 // no system has smaller pages
)

// The states of a header.
const (
	settled = 's'
	moving  = 'm' // a successor that does not have its text yet: see steal
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is a record that cannot be believed.
var errDamaged = errors.New("damaged")

// errTorn says that the header could not be written, and may or may not stand there.
var errTorn = errors.New("the record's header could not be written")

// header is a parsed header.
type header struct {
	state          byte
	offset, length int
	sum            uint32
}

func appendHeader(b []byte, state byte, offset int, text []byte) []byte {
	start := len(b)
	b = append(append(b, magic...), state, '\n')
	b = binary.BigEndian.AppendUint32(b, uint32(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return binary.BigEndian.AppendUint32(b, checksum(b[start:], text))
}

// checksum is that of a header up to the checksum, and of the text.
func checksum(head, text []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, text)
}

func parseHeader(b []byte) (h header, err error) {
	if len(b) < headerLen {
		return h, fmt.Errorf("%w: its header is cut off", errDamaged)
	}
	n := b[len(magic)+2:]
	h.state, h.sum = b[len(magic)], binary.BigEndian.Uint32(n[8:])
	h.offset, h.length = int(binary.BigEndian.Uint32(n)), int(binary.BigEndian.Uint32(n[4:]))
	if string(b[:len(magic)]) != magic || h.state != settled && h.state != moving || b[len(magic)+1] != '\n' ||
		h.offset < textStart || h.offset > 4*maxRecord || h.length > maxRecord ||
		h.state == moving && h.length > 0 {
		return h, fmt.Errorf("%w: its header is malformed", errDamaged)
	}
	return h, nil
}

// recordBytes is a whole file with this record.
func recordBytes(s *state) []byte {
	b, _ := appendState(make([]byte, textStart), s)
	appendHeader(b[:0], settled, textStart, b[textStart:])
	return b
}

// file is an open record file.
type file struct {
	fd   int
	in   *folder
	name string // in the folder
	path string
	id   fileID
	head header
	text []byte // the record's text in force; a part of the memory
}

// memory is used again by one operation after the other.
type memory struct {
	page []byte // what a file begins with, a page at least
	out  []byte // what is written
	op   operation
	read *state
}

func newMemory(s *store) *memory {
	m := &memory{page: make([]byte, 8*pageSize), read: &state{}}
	m.op.rules = record.Rules{Poll: poll, Granted: m.op.granted, Recall: m.op.granted, Alive: s.alive}
	return m
}

// openRecord opens a record file.
func openRecord(names *folder, name string, flags int) (*file, error) {
	fd, st, err := names.openRegular(name, flags)
	if err == nil {
		if err = names.checkLinks(name, &st); err != nil {
			closeFD(fd)
		}
	}
	if err != nil {
		return nil, explain(err, "", names.at(name))
	}
	return &file{fd: fd, in: names, name: name, path: names.at(name), id: idOf(&st)}, nil
}

// load reads the file. Without the lock it may see a change half done, which looks like damage.
func (f *file) load(m *memory) error {
	for {
		n, err := pread(f.fd, m.page[:cap(m.page)], 0)
		if err != nil {
			return err
		}
		page := m.page[:n]
		if f.head, err = parseHeader(page); err != nil {
			return err
		}
		end := f.head.offset + f.head.length
		if f.head.state == moving {
			end = n // it has no text
		}
		if end <= n {
			f.text = page[end-f.head.length : end]
			if checksum(page[:headerLen-4], f.text) != f.head.sum {
				return fmt.Errorf("%w: its checksum is wrong", errDamaged)
			}
			return nil
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(f.fd, &st); err != nil {
			return err
		}
		if int64(end) > st.Size || end <= cap(m.page) {
			return fmt.Errorf("%w: its text is cut off", errDamaged)
		}
		m.page = make([]byte, end+end/2)
	}
}

// parse returns the state in the text, which must be that of the file.
func (f *file) parse(m *memory) (*state, error) {
	if err := parseState(f.text, m.read); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if fileName(m.read.name) != strings.TrimSuffix(f.name, oldSuffix) {
		return nil, fmt.Errorf("%w: it is the record of %q", errDamaged, m.read.name)
	}
	return m.read, nil
}

// store makes the state the record in force. Unless it returns an error that is errTorn, a failure
// has changed nothing.
func (f *file) store(s *state, m *memory) (err error) {
	if m.out == nil {
		m.out = make([]byte, 0, 8*pageSize) // memory of this size, or more, begins with a page
	}
	if m.out, err = appendState(append(m.out[:0], make([]byte, textStart)...), s); err != nil {
		return err
	}
	text := m.out[textStart:]
	if string(text) == string(f.text) {
		return nil
	}
	if len(m.out) <= pageSize {
		appendHeader(m.out[:0], settled, textStart, text)
		if n, err := pwriteOnce(f.fd, m.out, 0); err != nil {
			return err
		} else if n < len(m.out) {
			return fmt.Errorf("%w: only %d of its bytes", errTorn, n)
		}
		f.head, f.text = header{settled, textStart, len(text), 0}, nil
		return nil
	}
	at := textStart
	if f.head.length > 0 && at+len(text) > f.head.offset {
		at = f.head.offset + f.head.length
	}
	if at+len(text) > 4*maxRecord || len(text) > maxRecord {
		return errors.New("too many holds and waiters: the record has grown too long")
	}
	if err := pwrite(f.fd, text, int64(at)); err != nil {
		return err
	}
	if err := pwrite(f.fd, appendHeader(nil, settled, at, text), 0); err != nil {
		return fmt.Errorf("%w: %w", errTorn, err)
	}
	f.head, f.text = header{settled, at, len(text), 0}, nil
	return nil
}

// create makes the file of a name, unless it has one meanwhile. It appears complete, so an empty or
// short one is always damage.
func create(names *folder, s *state) error {
	file, content := fileName(s.name), recordBytes(s)
	return explain(names.publish(file, content), s.name, names.at(file))
}

// readRecord reads a record file without a lock. What looks like damage may be a change half done, and is
// read again and again.
func (d *folder) readRecord(ctx context.Context, name string, m *memory) (*state, error) {
	start, pause := time.Now(), 10*time.Microsecond
	for {
		st, err := d.readOnce(name, m)
		if !errors.Is(err, errDamaged) || time.Since(start) > stuckAfter {
			return st, err
		}
		pause = min(2*pause, time.Millisecond)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// readOnce reads a record file once. It returns errDamaged also for a record that is being changed.
func (d *folder) readOnce(name string, m *memory) (*state, error) {
	f, err := openRecord(d, name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if err := f.load(m); err != nil {
		return nil, err
	}
	if f.head.state == settled {
		return f.parse(m)
	}
	st, err := d.readOnce(name+oldSuffix, m) // which moves there just now
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: it is being moved", errDamaged)
	}
	return st, err
}

func (f *file) close() { closeFD(f.fd) }

// suffix ends the names of record files, oldSuffix those of the files that a record was moved from, and
// hashed begins those that do not tell the name.
const (
	suffix    = ".lock"
	oldSuffix = ".old"
	hashed    = "~"
)

// longest is the length of the longest file name that common file systems take.
const longest = 255

// fileName returns the file of a name. Different names have different files, also where the file system
// ignores case or normalises Unicode: everything but lower-case letters, digits, "_", "-" and "." is
// written as "%" and two hex digits. Where that grows too long, the file is "~" and the SHA-256 of the
// name; the record itself has the name.
func fileName(name string) string {
	b := make([]byte, 0, len(name)+len(suffix)+16)
	for i := 0; i < len(name); i++ {
		if c := name[i]; 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.' {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	if len(b)+len(suffix) > longest {
		sum := sha256.Sum256([]byte(name))
		b = append(b[:0], hashed+hex.EncodeToString(sum[:])...)
	}
	return string(append(b, suffix...))
}

const hexDigits = "0123456789abcdef"

// explain says of an error what it means for the locks, and what to do. The
// name may be empty.
func explain(err error, name, path string) error {
	if err == nil {
		return nil
	}
	what := path
	if name != "" {
		what = fmt.Sprintf("record of %q (%s)", name, path)
	}
	switch {
	case errors.Is(err, errDamaged):
		return fmt.Errorf("%s is %w: nobody gets this lock until the file is deleted; do that when no process holds it", what, err)
	case errors.Is(err, errForeign):
		return fmt.Errorf("%s is %w: nobody gets this lock until it is moved away", what, err)
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%s: %w: a symbolic link is where a file of Holdfast's belongs", what, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: %s", what, err, whose(path))
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s: %w: nothing was changed; free some space", what, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: %w: locks need a directory that can be written", what, err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%s: %w: raise the limit (ulimit -n)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// whose says to whom a file, or else its nearest directory, belongs.
func whose(path string) string {
	info, err := os.Lstat(path)
	for err != nil && path != "/" && path != "." {
		path = filepath.Dir(path)
		info, err = os.Lstat(path)
	}
	if err != nil {
		return "and it cannot be looked at"
	}
	owner := "another user"
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = fmt.Sprintf("uid %d, gid %d", st.Uid, st.Gid)
	}
	return fmt.Sprintf("%s belongs to %s with mode %v, and this process runs as uid %d", path, owner, info.Mode(), os.Geteuid())
}
