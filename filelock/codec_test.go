//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"errors"
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

// full is a state with something of everything.
func full() *state {
	a := driver.Request{
		Name: "orders/42 \"é\"\u202e", Owner: "a", Mode: driver.Shared, TTL: time.Minute, LockDelay: 1, MinHold: 2, Unfair: true, Note: "one\x00 \u202e",
	}
	b := driver.Request{Name: a.Name, Owner: "b c", Mode: driver.Slot, Slots: 5, Permits: 2, TTL: maxDuration}
	s := &state{name: a.Name, last: 1<<53 - 1, broken: []broken{{"gone", 7}, {"", -1}}}
	s.Holds = []record.Hold{
		{Request: a, Client: idC, Token: 5, Taken: 1, Expires: 2, Since: -3, Valid: 4},
		{Request: b, Claim: true, Token: 6, Expires: 8},
		{Request: b, Closed: true, Expires: 9},
	}
	s.Queue = []record.Place{{Request: b, Client: idD, Joined: 1, Until: 2, Asked: 3}, {Request: a}}
	return s
}

func TestStateText(t *testing.T) {
	for _, want := range []*state{full(), {name: "x"}} {
		text := appendState(nil, want)
		got, err := parseState(string(text))
		if err != nil {
			t.Fatalf("%v of\n%s", err, text)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("read\n%+v\nnot\n%+v\nfrom\n%s", got, want, text)
		}
	}
}

// TestRecordWithABlock: a block of tokens is in the record without a field of its own, so
// that a release that reserves one token for each hold reads it.
func TestRecordWithABlock(t *testing.T) {
	r := driver.Request{Name: "x", Owner: "a", TTL: time.Second}
	wide := r
	wide.Owner, wide.Tokens = "b", tokenBlock
	want := &state{name: "x", last: 5000}
	want.Holds = []record.Hold{{Request: r, Client: idC, Token: 905, Last: 5000, Taken: 1, Expires: 2, Since: 3, Valid: 4}}
	want.Queue = []record.Place{{Request: wide, Client: idD, Joined: 5, Until: driver.Instant(6).Add(placeLife), Asked: 7}}
	const text = `name "x"
last 5000
hold 905 1 2 3 4 x 0 0 1000000000 0 0 fair "a" "0123456789abcdef0123456789abcdef" ""
wait 5 6 7 x 0 4096 1000000000 0 0 fair "b" "ffffffffffffffffffffffffffffffff" ""
end
`
	if got := string(appendState(nil, want)); got != text {
		t.Errorf("the record is\n%s\nnot\n%s", got, text)
	}
	if got, err := parseState(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, %v\nnot\n%+v", got, err, want)
	}
}

// FuzzState: the parser stands any text, and what it accepts it would write
// with the same meaning.
func FuzzState(f *testing.F) {
	f.Add(string(appendState(nil, full())))
	f.Add("name \"x\"\nlast 0\nend\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		again, err := parseState(string(appendState(nil, s)))
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
	content := func(offset int, state byte, text []byte) []byte {
		b := appendHeader(nil, offset, state, text)
		return append(append(b, make([]byte, offset-len(b))...), text...)
	}
	text := appendState(nil, full())
	f.Add(content(textStart, settled, text))
	f.Add(content(5000, settled, text))
	f.Add(content(textStart, moving, nil))
	f.Add([]byte(magic + "00000040 03ffffff s 00000000\n"))
	f.Add([]byte(boot{"id", 1, 2}.String()))
	path := filepath.Join(f.TempDir(), "file")
	fd, err := openFD(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		f.Fatal(err)
	}
	defer closeFD(fd)
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := overwrite(path, content); err != nil {
			t.Fatal(err)
		}
		r := &file{fd: fd, name: fileName("x"), path: path}
		if err := r.load(); err != nil {
			return
		}
		if len(r.text) > len(content) {
			t.Errorf("%d bytes were read of a file of %d", len(r.text), len(content))
		}
		if st, err := r.parse(parseAll); err == nil && st.name != "x" {
			t.Errorf("the record of %q was taken for that of x", st.name)
		}
	})
}

// FuzzBoot: what is read is what would be written.
func FuzzBoot(f *testing.F) {
	f.Add(boot{"dcc0bc1d-4767-4c53-95b0-0c7136fc2c71", 1795227219000000, 1795227219000001}.String())
	f.Add("holdfast1 boot \"\" epoch -1 began +1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := parseBoot(text); err == nil && b.String() != text {
			t.Errorf("read %+v from %q", b, text)
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
	if err != nil {
		t.Fatal(err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil { // so that there is an old text, too
		t.Fatal(r.Err)
	}
	path := filepath.Join(dir, "names", "x.lock")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, at int, bad []byte) {
		t.Helper()
		if err := overwrite(path, bad); err != nil {
			t.Fatal(err)
		}
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
	if err := overwrite(path, whole); err != nil {
		t.Fatal(err)
	}
	if r := c.Renew(t.Context(), []driver.Grant{g})[0]; r.Err != nil {
		t.Errorf("renewing with the record mended: %v", r.Err)
	}
}

// TestCutShort stops a change of a record that is longer than a page after every number of
// bytes written, as a kill or a full disk would: the old record must stay in force.
func TestCutShort(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	r := request("x")
	r.Note = strings.Repeat("n", pageSize)
	if _, err := c.Try(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "names", "x.lock")
	for round := range 5 {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := recordFile(t, c, "x")
		if err := f.load(); err != nil {
			t.Fatal(err)
		}
		st, err := f.state("x")
		if err != nil {
			t.Fatal(err)
		}
		st.Queue = append(st.Queue, record.Place{Request: request("x")})
		old, text := bytes.Clone(f.text), appendState(nil, st)
		if err := f.store(text); err != nil {
			t.Fatal(err)
		}
		at := f.head.offset
		after, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(text); n += 1 + n%7 {
			part := append(bytes.Clone(before), make([]byte, max(0, at+n-len(before)))...)
			copy(part[at:], after[at:at+n])
			if err := overwrite(path, part); err != nil {
				t.Fatal(err)
			}
			if err := f.load(); err != nil || !bytes.Equal(f.text, old) {
				t.Fatalf("round %d, cut short after %d bytes: %v, read\n%s", round, n, err, f.text)
			}
		}
		if err := overwrite(path, after); err != nil {
			t.Fatal(err)
		}
		if err := f.load(); err != nil || !bytes.Equal(f.text, text) {
			t.Fatalf("round %d, complete: %v, read\n%s", round, err, f.text)
		}
		f.close()
	}
}

// TestOnePage: a record that fits into a page is written from one page of memory.
func TestOnePage(t *testing.T) {
	c := openTest(t, t.TempDir())
	free(t, c, "x", "a new name")
	f := c.store.stripes[hash("x")%uint64(len(c.store.stripes))].open
	if at := uintptr(unsafe.Pointer(&f.ours[0])); at%pageSize != 0 || cap(f.ours) != pageSize {
		t.Errorf("the page to write is at %#x, and has %d bytes", at, cap(f.ours))
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

// BenchmarkState reads and writes a record with 63 waiters.
func BenchmarkState(b *testing.B) {
	s := &state{name: "contended"}
	for range 63 {
		s.Queue = append(s.Queue, record.Place{Request: request(s.name), Client: "0123456789abcdef0123456789abcdef", Joined: 1e15, Until: 1e15, Asked: 1e15})
	}
	text := appendState(nil, s)
	for b.Loop() {
		s, err := parseState(string(text))
		if err != nil {
			b.Fatal(err)
		}
		text = appendState(text[:0], s)
	}
	b.SetBytes(int64(len(text)))
}
