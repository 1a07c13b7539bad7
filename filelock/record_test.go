//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

const idC, idD = "0123456789abcdef0123456789abcdef", "ffffffffffffffffffffffffffffffff"

// encode is appendState.
func encode(s *state) []byte {
	b, _ := appendState(nil, s)
	return b
}

// parsed is parseState.
func parsed(text []byte) (*state, error) {
	s := &state{}
	return s, parseState(text, s)
}

// full is a state with something of everything.
func full() *state {
	a := driver.Request{
		Name: "orders/42 \"é\"\u202e", Owner: "a", Mode: driver.Shared, TTL: time.Minute, LockDelay: 1, MinHold: 2, Unfair: true, Note: "one\x00 \u202e",
	}
	b := driver.Request{Name: a.Name, Owner: "b c", Mode: driver.Slot, Slots: 5, Permits: 2, TTL: maxDuration}
	s := &state{name: a.Name, boot: 1 << 63, last: 1<<53 - 1, broken: []broken{{"gone", 7}, {"", -1}}}
	s.Holds = []record.Hold{
		{Request: a, Client: idC, Token: 5, Last: 6, Taken: 1, Expires: 2, Since: -3, Valid: 4},
		{Request: b, Claim: true, Token: 6, Expires: 8},
		{Request: b, Closed: true, Expires: 9},
	}
	s.Queue = []record.Place{{Request: b, Client: idD, Joined: 1, Until: 2, Asked: 3}, {Request: a}}
	return s
}

// FuzzState: the parser stands any text, and what it accepts it would write
// with the same meaning.
func FuzzState(f *testing.F) {
	f.Add(encode(full()))
	f.Add(encode(&state{name: "x"}))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parsed(text)
		if err != nil {
			return
		}
		again, err := parsed(encode(s))
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("read %+v, and from its own text %+v, %v", s, again, err)
		}
		checkDecoded(t, s)
	})
}

// checkDecoded fails the test if a state has something that must not come out of
// a file: a client's id that is a path, or numbers that overflow.
func checkDecoded(t *testing.T, s *state) {
	t.Helper()
	check := func(r driver.Request, client string, at ...driver.Instant) {
		r.Owner = "x" // a closed hold has none
		if err := checkRequest(&r); err != nil || r.Name != s.name {
			t.Errorf("the request %+v was read: %v", r, err)
		}
		if client != "" && (len(client) != 32 || strings.Trim(client, "0123456789abcdef") != "") {
			t.Errorf("the client %q was read", client)
		}
		for _, i := range at {
			for _, d := range []time.Duration{r.TTL, r.LockDelay, r.MinHold} {
				if i.Add(d) < i || i.Sub(-maxInstant) < 0 {
					t.Errorf("%d + %d overflows", i, d)
				}
			}
		}
	}
	for _, h := range s.Holds {
		check(h.Request, h.Client, h.Taken, h.Expires, h.Since)
	}
	for _, p := range s.Queue {
		check(p.Request, p.Client, p.Joined, p.Until, p.Asked)
	}
	if s.last < 0 || s.last >= 1<<53 {
		t.Errorf("the token %d was read", s.last)
	}
}

// FuzzFile: reading a file stands any content, and takes no more memory than the
// file has.
func FuzzFile(f *testing.F) {
	content := func(state byte, offset int, text []byte) []byte {
		b := appendHeader(nil, state, offset, text)
		return append(append(b, make([]byte, offset-len(b))...), text...)
	}
	text := encode(full())
	f.Add(content(settled, textStart, text))
	f.Add(content(settled, 5000, text))
	f.Add(content(moving, textStart, nil))
	f.Add(appendHeader(nil, settled, textStart, make([]byte, 1<<20)))
	f.Add([]byte(bootText(1)))
	path := filepath.Join(f.TempDir(), "file")
	fd, err := openFD(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	defer closeFD(fd)
	f.Fuzz(func(t *testing.T, content []byte) {
		must(t, overwrite(path, content))
		r := &file{fd: fd, name: fileName("x"), path: path}
		if err := r.load(newMemory(&store{})); err != nil {
			return
		}
		if len(r.text) > len(content) {
			t.Errorf("%d bytes were read of a file of %d", len(r.text), len(content))
		}
		if st, err := r.parse(newMemory(&store{})); err == nil && st.name != "x" {
			t.Errorf("the record of %q was taken for that of x", st.name)
		}
	})
}

// TestDamage cuts a record off at every length and spoils every byte of it. The
// name must then be closed with an error that names the file, unless the record
// reads as it was.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	g, err := c.Try(t.Context(), request("x"))
	must(t, err)
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil { // so that there is an old text, too
		t.Fatal(r.Err)
	}
	path := filepath.Join(dir, namesName, "x.lock")
	whole, err := os.ReadFile(path)
	must(t, err)
	check := func(what string, at int, bad []byte) {
		t.Helper()
		must(t, overwrite(path, bad))
		_, err := c.Try(t.Context(), request("x"))
		if bytes.Equal(bad, whole) || errors.Is(err, driver.ErrHeld) {
			return
		}
		if !errors.Is(err, errDamaged) || !bytes.Contains([]byte(err.Error()), []byte(path)) {
			t.Fatalf("%s at %d: Try of a held name returned %v", what, at, err)
		}
		if r := c.Renew(t.Context(), []driver.Grant{g})[0]; !errors.Is(r.Err, errDamaged) || driver.Gone(r.Err) {
			t.Fatalf("%s at %d: Renew returned %v", what, at, r.Err)
		}
		if now, _ := os.ReadFile(path); !bytes.Equal(now, bad) {
			t.Fatalf("%s at %d: the damaged file was changed", what, at)
		}
	}
	refused := 0
	for i := range whole {
		check("cut", i, whole[:i])
		for _, flip := range []byte{1, 0x80} {
			bad := bytes.Clone(whole)
			bad[i] ^= flip
			check("spoiled", i, bad)
			if c.Renew(t.Context(), []driver.Grant{g})[0].Err != nil {
				refused++
			}
		}
	}
	if refused < 200 {
		t.Errorf("only %d of %d spoiled bytes were noticed", refused, 2*len(whole))
	}
	must(t, overwrite(path, whole))
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Errorf("renewing with the record mended: %v", r.Err)
	}
}

// TestCutShort stops a change of a record that is longer than a page after every number of
// bytes written, as a kill or a full disk would: the old record must stay in force.
func TestCutShort(t *testing.T) {
	c := attachTest(t, t.TempDir())
	st := &state{name: "x"}
	must(t, create(c.store.place.Load().names, st))
	f, m := recordFile(t, c, "x"), newMemory(c.store)
	defer f.close()
	reads := func(content []byte, want *state, what string) {
		t.Helper()
		must(t, overwrite(f.path, content), f.load(m))
		if got, err := f.parse(m); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %v, read\n%+v\nnot\n%+v", what, err, got, want)
		}
	}
	for round := range 6 {
		before, err := os.ReadFile(f.path)
		must(t, err)
		old, err := parsed(encode(st))
		must(t, err)
		r := request("x")
		r.Note = strings.Repeat("n", pageSize)
		st.Queue = append(st.Queue, record.Place{Request: r})
		must(t, f.load(m), f.store(st, m))
		after, err := os.ReadFile(f.path)
		must(t, err)
		at := f.head.offset
		for n := 0; n < f.head.length; n += 1 + n%97 {
			part := append(bytes.Clone(before), make([]byte, max(0, at+n-len(before)))...)
			copy(part[at:], after[at:at+n])
			reads(part, old, fmt.Sprintf("round %d, cut short after %d bytes", round, n))
		}
		reads(after, st, fmt.Sprintf("round %d, complete", round))
	}
}

// TestOnePage: a record that fits into a page is written from one page of memory.
func TestOnePage(t *testing.T) {
	c := attachTest(t, t.TempDir())
	f, m := &file{fd: -1}, newMemory(c.store)
	for notes := range 200 {
		st := &state{name: "x"}
		for range notes {
			st.Queue = append(st.Queue, record.Place{Request: request("x")})
		}
		f.store(st, m) // which fails, as there is no file
		if at := uintptr(unsafe.Pointer(&m.out[0])); at%pageSize != 0 {
			t.Fatalf("the memory of %d bytes to write from is at %#x", cap(m.out), at)
		}
	}
}

// overwrite is os.WriteFile without emptying the file first, after which ext4
// would flush it.
func overwrite(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(b)))
}
