//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

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
		{Request: b, Closed: true, Expires: 9},
	}
	s.Queue = []record.Place{{Request: b, Client: idD, Joined: 1, Seen: 2, Asked: 3}, {Request: a}}
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

// TestCutShort stops a change of a record after every number of bytes written,
// as a kill or a full disk would: the old record must stay in force.
func TestCutShort(t *testing.T) {
	dir := t.TempDir()
	c := openTest(t, dir)
	if _, err := c.Try(t.Context(), request("x")); err != nil {
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
		for n := range text {
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
		s.Queue = append(s.Queue, record.Place{Request: request(s.name), Client: "0123456789abcdef0123456789abcdef", Joined: 1e15, Seen: 1e15, Asked: 1e15})
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
