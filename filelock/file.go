//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"strconv"
	"syscall"
)

// A record file begins with a header that says where the record's text stands:
//
//	holdfast1 <offset> <length> <state> <checksum>\n
//
// with 8 hex digits each for offset, length and the CRC-32C over the header up
// to there and the text. A process that is killed at any point of a change,
// or finds the disk full, leaves either the old record or the new one:
//
//   - A record that fits into the first page of the file is written there, header and
//     text, with one call. The kernel copies what lies in one page, on both sides, in
//     one step, which no signal interrupts.
//   - The text of a longer one is written beside the old one, and then the header.
//
// Since the text in force is always checked, damage is never taken for an older
// state. Writing in place, unlike a rename, also costs no I/O: ext4 flushes a file
// that replaces another.
const (
	magic     = "holdfast1 "
	headerLen = len(magic) + 8 + 1 + 8 + 1 + 1 + 1 + 8 + 1
	textStart = 64      // of the first text
	pageSize  = 4096    // no system has smaller pages
	maxRecord = 1 << 26 // a longer one is taken for damage
)

// The states of a header.
const (
	settled = 's'
	moving  = 'm' // a successor that does not have its text yet: see steal
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is a record that cannot be believed.
var errDamaged = errors.New("damaged")

// header is a parsed header.
type header struct {
	offset, length int
	state          byte
	sum            uint32
}

func appendHeader(b []byte, offset int, state byte, text []byte) []byte {
	start := len(b)
	b = append(b, magic...)
	b = append(appendHex(b, uint32(offset)), ' ')
	b = append(appendHex(b, uint32(len(text))), ' ', state, ' ')
	sum := crc32.Update(crc32.Checksum(b[start:], castagnoli), castagnoli, text)
	return append(appendHex(b, sum), '\n')
}

func appendHex(b []byte, v uint32) []byte {
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[v>>shift&15])
	}
	return b
}

func parseHeader(b []byte) (h header, err error) {
	if len(b) < headerLen {
		return h, fmt.Errorf("%w: its header is cut off", errDamaged)
	}
	b = b[:headerLen]
	at := len(magic)
	hex := func() (v int) {
		u, e := strconv.ParseUint(string(b[at:at+8]), 16, 32)
		if e != nil {
			err = e
		}
		at += 9
		return int(u)
	}
	h.offset, h.length = hex(), hex()
	h.state = b[at]
	at += 2
	h.sum = uint32(hex())
	if err != nil || string(b[:len(magic)]) != magic || h.state != settled && h.state != moving ||
		h.offset < textStart || h.length < 0 || h.length > maxRecord || h.offset > 4*maxRecord {
		return h, fmt.Errorf("%w: its header is malformed", errDamaged)
	}
	return h, nil
}

// file is an open record file.
type file struct {
	fd   int
	in   *folder
	name string // in the folder
	path string
	id   fileID
	mode fs.FileMode // when it was opened
	head header
	text []byte // the record's text in force; a part of page or ours where it fits
	page []byte // memory for what the file begins with, a page at least

	// While the first page holds what is in ours, the record is known.
	ours  []byte // what this process last wrote there; a page of memory
	known *state
	fresh bool // load has found the record to be the known one
}

// load reads the file. Without the lock it may see a change half done, which
// looks like damage.
func (f *file) load() error {
	if cap(f.page) < pageSize {
		f.page = make([]byte, pageSize)
	}
	var page []byte
	for {
		// One call: of a regular file less than was asked for is all there is.
		n, err := preadOnce(f.fd, f.page[:cap(f.page)], 0)
		if err != nil {
			return err
		}
		page = f.page[:n]
		if f.fresh = f.known != nil && len(f.ours) > 0 && bytes.HasPrefix(page, f.ours); f.fresh {
			return nil
		}
		f.known = nil
		if f.head, err = parseHeader(page); err != nil {
			return err
		}
		end := f.head.offset + f.head.length
		if f.head.length == 0 {
			f.text = nil
			break
		}
		if end <= n {
			f.text = page[f.head.offset:end]
			break
		}
		var st syscall.Stat_t
		if err := syscall.Fstat(f.fd, &st); err != nil {
			return err
		}
		if int64(end) > st.Size || end <= cap(f.page) {
			return fmt.Errorf("%w: its text is cut off", errDamaged)
		}
		f.page = make([]byte, end+end/2)
	}
	check := headerLen - 9
	if crc32.Update(crc32.Checksum(page[:check], castagnoli), castagnoli, f.text) != f.head.sum {
		return fmt.Errorf("%w: its checksum is wrong", errDamaged)
	}
	return nil
}

// store makes text the record in force. Unless it returns an error that is
// errTorn, a failure has changed nothing.
func (f *file) store(text []byte) error {
	f.ours = f.ours[:0]
	at := textStart
	if at+len(text) <= pageSize {
		if f.ours == nil {
			f.ours = make([]byte, 0, pageSize) // memory of this size begins with a page
		}
		ours := appendHeader(f.ours, at, settled, text)
		ours = append(ours, make([]byte, textStart-headerLen)...)
		ours = append(ours, text...)
		if n, err := pwriteOnce(f.fd, ours, 0); err != nil {
			return err
		} else if n < len(ours) {
			return fmt.Errorf("%w: only %d of its bytes", errTorn, n)
		}
		f.ours, f.text = ours, ours[textStart:]
		f.head = header{offset: at, length: len(text), state: settled}
		return nil
	}
	if f.head.length > 0 && at+len(text) > f.head.offset {
		at = f.head.offset + f.head.length
	}
	if at+len(text) > 4*maxRecord || len(text) > maxRecord {
		return errors.New("too many holds and waiters: the record has grown too long")
	}
	if err := pwrite(f.fd, text, int64(at)); err != nil {
		return err
	}
	head := appendHeader(make([]byte, 0, headerLen), at, settled, text)
	if err := pwrite(f.fd, head, 0); err != nil {
		return fmt.Errorf("%w: %w", errTorn, err)
	}
	f.head = header{offset: at, length: len(text), state: settled}
	return nil
}

// errTorn says that the header could not be written, and may or may not stand
// there.
var errTorn = errors.New("the record's header could not be written")

// pread reads until b is full or the file ends.
func pread(fd int, b []byte, offset int64) (int, error) {
	done := 0
	for done < len(b) {
		n, err := preadOnce(fd, b[done:], offset+int64(done))
		if n == 0 || err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func preadOnce(fd int, b []byte, offset int64) (int, error) {
	for {
		if n, err := syscall.Pread(fd, b, offset); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// pwrite writes all of b.
func pwrite(fd int, b []byte, offset int64) error {
	for len(b) > 0 {
		n, err := pwriteOnce(fd, b, offset)
		switch {
		case err != nil:
			return err
		case n == 0:
			return syscall.ENOSPC
		}
		b, offset = b[n:], offset+int64(n)
	}
	return nil
}

func pwriteOnce(fd int, b []byte, offset int64) (int, error) {
	for {
		if n, err := syscall.Pwrite(fd, b, offset); err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
