//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
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
// to there and the text. A change writes the new text beside the old one and
// then the header, 40 bytes in one page, with one call. So whoever is killed
// at any point, or finds the disk full, leaves either the old record or the
// new one; and since the text in force is always checked, damage is never
// taken for an older state. Writing in place, unlike a rename, also costs no
// I/O: ext4 flushes a file that replaces another.
const (
	magic     = "holdfast1 "
	headerLen = len(magic) + 8 + 1 + 8 + 1 + 1 + 1 + 8 + 1
	textStart = 64      // of the first text
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
	text []byte // the record's text in force; a part of page where it fits
	page []byte
}

// load reads the file. Without the lock it may see a change half done, which
// looks like damage.
func (f *file) load() error {
	if cap(f.page) < 4096 {
		f.page = make([]byte, 4096)
	}
	n, err := pread(f.fd, f.page[:4096], 0)
	if err != nil {
		return err
	}
	page := f.page[:n]
	if f.head, err = parseHeader(page); err != nil {
		return err
	}
	end := f.head.offset + f.head.length
	if end <= n {
		f.text = page[f.head.offset:end]
	} else {
		var st syscall.Stat_t
		if err := syscall.Fstat(f.fd, &st); err != nil {
			return err
		}
		if f.head.length > 0 && int64(end) > st.Size {
			return fmt.Errorf("%w: its text is cut off", errDamaged)
		}
		f.text = make([]byte, f.head.length)
		if n, err = pread(f.fd, f.text, int64(f.head.offset)); err != nil {
			return err
		}
		if n < f.head.length {
			return fmt.Errorf("%w: its text is cut off", errDamaged)
		}
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
		n, err := syscall.Pread(fd, b[done:], offset+int64(done))
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return done, err
		case n == 0:
			return done, nil
		default:
			done += n
		}
	}
	return done, nil
}

// pwrite writes all of b.
func pwrite(fd int, b []byte, offset int64) error {
	for len(b) > 0 {
		n, err := syscall.Pwrite(fd, b, offset)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case n == 0:
			return syscall.ENOSPC
		default:
			b, offset = b[n:], offset+int64(n)
		}
	}
	return nil
}
