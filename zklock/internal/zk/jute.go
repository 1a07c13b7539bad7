package zk

import (
	"encoding/binary"
	"errors"
)

// Jute is ZooKeeper's encoding: big-endian integers; strings, buffers and vectors with a signed
// 32-bit length before them, where -1 stands for none.

// encoder appends to b.
type encoder struct{ b []byte }

func (e *encoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }

func (e *encoder) bool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	e.b = append(e.b, b)
}

func (e *encoder) string(v string) { e.bytes([]byte(v)) }

func (e *encoder) bytes(v []byte) {
	e.int32(int32(len(v)))
	e.b = append(e.b, v...)
}

func (e *encoder) strings(v []string) {
	e.int32(int32(len(v)))
	for _, s := range v {
		e.string(s)
	}
}

// errGarbage says that what a server sent cannot be read.
var errGarbage = errors.New("zk: the server sent what cannot be read")

// decoder reads from b. After an error everything read is zero, and err stays.
type decoder struct {
	b   []byte
	err error
}

// take returns the next n bytes, which are part of b.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err, d.b = errGarbage, nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) int32() int32 {
	if v := d.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if v := d.take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.take(1)
	return v != nil && v[0] != 0
}

// bytes returns a copy, or nil if there is nothing.
func (d *decoder) bytes() []byte {
	n := d.int32()
	if n == -1 || n == 0 {
		return nil
	}
	return append([]byte(nil), d.take(int(n))...)
}

func (d *decoder) string() string {
	n := d.int32()
	if n == -1 {
		return ""
	}
	return string(d.take(int(n)))
}

// count reads the length of a vector whose elements have at least size bytes each. So a lie about
// it reserves no more memory than the frame has.
func (d *decoder) count(size int) int {
	n := d.int32()
	if n == -1 {
		return 0
	}
	if n < 0 || int(n) > len(d.b)/size {
		d.err, d.b = errGarbage, nil
		return 0
	}
	return int(n)
}

func (d *decoder) strings() []string {
	n := d.count(4)
	if n == 0 {
		return nil
	}
	v := make([]string, 0, n)
	for range n {
		v = append(v, d.string())
	}
	return v
}

func (d *decoder) stat() Stat {
	s := Stat{Czxid: d.int64(), Mzxid: d.int64(), Ctime: d.int64(), Mtime: d.int64(), Version: d.int32()}
	d.take(4 + 4) // versions of the children and the ACL
	s.EphemeralOwner = d.int64()
	d.take(4 + 4 + 8) // length of the data, number of children, the transaction that last changed those
	return s
}
