//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// state is what the file of a name holds.
type state struct {
	record.Record
	name   string
	boot   uint64       // the boot of the host that the instants are of: see boot.go
	last   driver.Token // the last token that was given out or reserved
	broken []broken
}

// broken is a hold that an operator broke. Its owner is told so when it comes back, as long as it
// may believe that it holds.
type broken struct {
	owner string
	until driver.Instant
}

// idle reports whether the record says nothing that has to be remembered. The last token need not
// be: see store.token.
func (s *state) idle() bool { return s.Idle() && len(s.broken) == 0 }

// quiet reports whether nobody holds the name or waits for it. Then nobody may come back to it, and
// it is idle or will be.
func (s *state) quiet() bool {
	return len(s.Queue) == 0 && !slices.ContainsFunc(s.Holds, func(h record.Hold) bool { return !h.Closed })
}

// wasBroken reports whether an operator broke the owner's hold.
func (s *state) wasBroken(owner string) bool {
	return slices.ContainsFunc(s.broken, func(b broken) bool { return b.owner == owner })
}

// What a record may say, at most. Package holdfast asks for less. Sums and differences of two such
// times do not overflow.
const (
	maxOwner    = 1 << 10   // bytes
	maxNote     = 1 << 16   // bytes
	maxCount    = 1<<31 - 1 // of slots and permits
	maxToken    = 1<<53 - 1
	maxInstant  = 1<<62 - 1 // either way
	maxDuration = 1 << 61
	maxRecord   = 1 << 26 // bytes; a longer record is taken for damage
)

// checkRequest returns an error for a request that no record can say (P10).
func checkRequest(r *driver.Request) error {
	c := codec{out: make([]byte, 0, 256)}
	if c.request(r, "", r.Name); r.Owner == "" {
		c.fail("the owner is missing")
	}
	return cmp.Or(driver.CheckName(r.Name), c.err)
}

// appendState appends a record as bytes.
func appendState(b []byte, s *state) ([]byte, error) {
	c := codec{out: b}
	c.state(s)
	return c.out, c.err
}

// parseState reads the bytes of a record into s, whose memory it uses again. Another user who may write in
// the directory may have made them up. They are used for nothing but the locks of this directory, and each
// part is checked here.
func parseState(text []byte, s *state) error {
	c := codec{reading: true, in: string(text)}
	if c.state(s); c.in != "" {
		c.fail("something after the end")
	}
	if err := driver.CheckName(s.name); err != nil {
		c.fail(err.Error())
	}
	return c.err
}

// codec checks the fields of a record and writes or, with reading, reads them. Both take the same
// way through them: nobody writes what nobody could read. A number has 8 bytes, the highest first. A text and
// a list follow their lengths.
type codec struct {
	reading bool
	in      string // what is not yet read
	out     []byte
	err     error // the first one; after it zeros are read
}

func (c *codec) state(s *state) {
	s.name = c.text(s.name, driver.MaxName)
	s.boot = uint64(c.int(int64(s.boot), math.MinInt64, math.MaxInt64))
	s.last = driver.Token(c.int(int64(s.last), 0, maxToken))
	s.Holds = list(c, s.Holds, 100)
	for i := range s.Holds {
		h := &s.Holds[i]
		h.Closed, h.Claim = c.flag(h.Closed), c.flag(h.Claim)
		h.Token = driver.Token(c.int(int64(h.Token), 0, maxToken))
		h.Last = driver.Token(c.int(int64(h.Last), 0, maxToken))
		h.Taken, h.Expires, h.Since = c.instant(h.Taken), c.instant(h.Expires), c.instant(h.Since)
		h.Valid = c.duration(h.Valid)
		h.Client = c.request(&h.Request, h.Client, s.name)
	}
	s.broken = list(c, s.broken, 16)
	for i := range s.broken {
		b := &s.broken[i]
		b.owner, b.until = c.text(b.owner, maxOwner), c.instant(b.until)
	}
	s.Queue = list(c, s.Queue, 100)
	for i := range s.Queue {
		p := &s.Queue[i]
		p.Joined, p.Until, p.Asked = c.instant(p.Joined), c.instant(p.Until), c.instant(p.Asked)
		p.Client = c.request(&p.Request, p.Client, s.name)
	}
}

func (c *codec) request(r *driver.Request, client, name string) string {
	r.Name = name
	r.Mode = driver.Mode(c.int(int64(r.Mode), 0, int64(driver.Slot)))
	r.Slots, r.Permits = int(c.int(int64(r.Slots), 0, maxCount)), int(c.int(int64(r.Permits), 0, maxCount))
	r.Tokens = int(c.int(int64(r.Tokens), 0, tokenBlock))
	r.TTL, r.LockDelay, r.MinHold = c.duration(r.TTL), c.duration(r.LockDelay), c.duration(r.MinHold)
	r.Unfair = c.flag(r.Unfair)
	r.Owner, r.Note = c.text(r.Owner, maxOwner), c.text(r.Note, maxNote)
	if client = c.text(client, idLength); c.reading && client != "" && !validID(client) { // it names a file
		c.fail("malformed client " + strconv.Quote(client))
	}
	return client
}

func (c *codec) instant(i driver.Instant) driver.Instant {
	return driver.Instant(c.int(int64(i), -maxInstant, maxInstant))
}

func (c *codec) duration(d time.Duration) time.Duration {
	return time.Duration(c.int(int64(d), 0, maxDuration))
}

func (c *codec) flag(v bool) bool {
	n := int64(0)
	if v {
		n = 1
	}
	return c.int(n, 0, 1) == 1
}

func (c *codec) text(v string, most int64) string {
	n := int(c.int(int64(len(v)), 0, most))
	if !c.reading {
		c.out = append(c.out, v...)
		return v
	}
	if n > len(c.in) {
		c.fail("it is cut off")
		return ""
	}
	v, c.in = c.in[:n], c.in[n:]
	return v
}

// list writes or reads the length of a list, and returns a list of this length. Each element has this
// many bytes at least, so that a made-up length takes no memory.
func list[T any](c *codec, v []T, size int) []T {
	if !c.reading {
		c.int(int64(len(v)), 0, math.MaxInt32)
		return v
	}
	n := int(c.int(0, 0, int64(len(c.in)/size)))
	return slices.Grow(v[:0], n)[:n]
}

func (c *codec) int(n, least, most int64) int64 {
	if !c.reading {
		c.out = binary.BigEndian.AppendUint64(c.out, uint64(n))
	} else if b := c.in; len(b) < 8 {
		c.fail("it is cut off")
		return 0
	} else {
		n = int64(uint64(b[7]) | uint64(b[6])<<8 | uint64(b[5])<<16 | uint64(b[4])<<24 |
			uint64(b[3])<<32 | uint64(b[2])<<40 | uint64(b[1])<<48 | uint64(b[0])<<56)
		c.in = b[8:]
	}
	if n < least || n > most {
		c.fail(fmt.Sprintf("%d is out of range: %d to %d is allowed", n, least, most))
		return 0
	}
	return n
}

func (c *codec) fail(what string) {
	if c.err == nil {
		c.err = errors.New(what)
	}
	c.in = ""
}
