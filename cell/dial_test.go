package cell

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTokenFile: a token that is replaced in its file is used from then on. A call for which there is no token
// is not sent.
func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	b := &bearer{config: &Config{TokenFile: file}, next: roundTripper(func(r *http.Request) (*http.Response, error) {
		return nil, errors.New(r.Header.Get("Authorization"))
	})}
	says := func() string {
		_, err := b.RoundTrip(httptest.NewRequest("GET", "/", http.NoBody))
		return err.Error()
	}
	if got := says(); got != "Bearer first" {
		t.Errorf("at first: %q", got)
	}
	write("second")
	if got := says(); got != "Bearer second" {
		t.Errorf("replaced: %q", got)
	}
	for _, without := range []func(){func() { write("") }, func() { os.Remove(file) }} {
		without()
		if _, err := b.RoundTrip(httptest.NewRequest("GET", "/", http.NoBody)); !NotSent(err) {
			t.Errorf("without a token: %v", err)
		}
	}
}

func TestBadTokens(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "\n", "two lines": "a\nb", "long": strings.Repeat("a", 5000)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{Members: []string{"localhost:1"}, TokenFile: filepath.Join(dir, name)}); err == nil {
			t.Errorf("P10: a file with %s is taken", name)
		}
	}
	for what, c := range map[string]Config{
		"no file": {TokenFile: filepath.Join(dir, "none")}, "two": {Token: "a", TokenFile: filepath.Join(dir, "long")},
		"a line break": {Token: "secret\r\nX: y"}, "a space": {Token: "secret secret"},
	} {
		c.Members = []string{"localhost:1"}
		if _, err := New(c); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("P10: %s: %v", what, err)
		}
	}
}
