package fence

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
)

// FuzzGate offers any sequence of tokens to a gate: two bytes each, the first
// one's lowest bits the mode. Marks never go down, an admitted token is never
// below the marks that it met, a refused one is, and changes nothing.
func FuzzGate(f *testing.F) {
	f.Add([]byte{0, 3, 1, 4, 0, 2, 1, 3, 0, 4})
	f.Add([]byte{1, 9, 1, 8, 0, 8, 0, 9, 2, 9, 3, 9, 0, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		var g Gate
		for ; len(ops) >= 2; ops = ops[2:] {
			mode, token := driver.Mode(ops[0]%4), driver.Token(ops[1])
			before := g.marks
			raises := mode <= shared && token > 0 && g.raises(token, mode)
			err := g.Admit(token, mode)
			after := g.marks
			mark := before.exclusive
			if mode == exclusive {
				mark = max(mark, before.shared)
			}
			valid := token > 0 && mode <= shared
			switch {
			case after.exclusive < before.exclusive || after.shared < before.shared:
				t.Fatalf("%v token %d took the marks from %v to %v", mode, token, before, after)
			case (err == nil) != (valid && token >= mark):
				t.Fatalf("%v token %d at %v: %v", mode, token, before, err)
			case valid && err != nil && !errors.Is(err, ErrStale), !valid && errors.Is(err, ErrStale):
				t.Fatalf("%v token %d at %v: %v", mode, token, before, err)
			case err != nil && after != before, raises != (after != before):
				t.Fatalf("%v token %d: %v, from %v to %v, was to raise %v", mode, token, err, before, after, raises)
			case err == nil && (mode == exclusive && after.exclusive != token || mode == shared && after.shared < token):
				t.Fatalf("%v token %d was not adopted: %v", mode, token, after)
			}
			if again := g.Admit(token, mode); (again == nil) != (err == nil) || g.marks != after {
				t.Fatalf("%v token %d again: %v after %v", mode, token, again, err)
			}
		}
	})
}

// FuzzHandler sends any header. What passes is a sequencer in its one true
// form, and never a token below one that has passed.
func FuzzHandler(f *testing.F) {
	for _, seed := range []string{
		"", "hf1:x:42:orders%2F42", "hf1:s:1:a", "hf1:p:1:a", "hf1:x:0:a", "hf1:x:-1:a", "hf1:x:01:a", "hf1:x:42:", "hf1:x:42:a+b",
		"hf1:x:42:a b", "hf2:x:42:a", "hf1:x:9007199254740991:a", "hf1:x:9223372036854775808:a", "hf1:x:42:a, hf1:x:42:a", "hf1:x:42:%00",
	} {
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, header string, write bool) {
		var gates Gates
		var passed driver.Sequencer
		h := Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var ok bool
			if passed, ok = FromContext(r.Context()); !ok {
				t.Fatal("passed without a sequencer")
			}
		}), &HandlerOptions{Gates: &gates})
		method := http.MethodGet
		if write {
			method = http.MethodPut
		}
		send := func() int {
			r := httptest.NewRequest(method, "/", nil)
			r.Header[Header] = []string{header}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		switch code := send(); code {
		case http.StatusOK:
			if passed.String() != header || passed.Token < 1 || passed.Token > maxToken || passed.Mode > shared || write && passed.Mode == shared {
				t.Fatalf("%q passed as %+v", header, passed)
			}
			if passed.Token == maxToken {
				return
			}
			if err := gates.Admit(passed.Name, passed.Token+1, exclusive); err != nil {
				t.Fatal(err)
			}
			if code := send(); code != http.StatusConflict {
				t.Fatalf("%q passed with %d below a newer token", header, code)
			}
		case http.StatusBadRequest:
			if len(gates.recent) != 0 {
				t.Fatalf("%q was refused and left a gate", header)
			}
		case http.StatusForbidden:
			if s, err := driver.ParseSequencer(header); err != nil || s.Mode != shared || !write {
				t.Fatalf("%q: 403", header)
			}
		default:
			t.Fatalf("%q: status %d", header, code)
		}
	})
}
