package server

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

func put(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newToken returns a token, and what the file of principals says of it.
func newToken(expires time.Time) (string, bearer) {
	text := rand.Text()
	sum := sha256.Sum256([]byte(text))
	return text, bearer{hex.EncodeToString(sum[:]), expires}
}

// MarshalText implements encoding.TextMarshaler.
func (r right) MarshalText() ([]byte, error) { return []byte(rightNames[r]), nil }

// people is a file of principals.
type people struct {
	file string
	all  map[string]*principal
}

func newPeople(t *testing.T) *people {
	return &people{filepath.Join(t.TempDir(), "principals.json"), map[string]*principal{}}
}

// add adds a principal that has a token, and returns that.
func (p *people) add(t *testing.T, name string, grants ...grant) (token string) {
	t.Helper()
	token, entry := newToken(time.Now().Add(time.Hour))
	p.all[name] = &principal{Name: name, Tokens: []bearer{entry}, Rights: grants}
	p.write(t)
	return token
}

// write writes the file as a careful program does: it is there whole, or not.
func (p *people) write(t *testing.T) {
	t.Helper()
	var f principalsFile
	for _, e := range p.all {
		f.Principals = append(f.Principals, *e)
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	put(t, p.file+"~", text)
	if err := os.Rename(p.file+"~", p.file); err != nil {
		t.Fatal(err)
	}
}

func (a api) status(t *testing.T) error {
	t.Helper()
	_, err := a.cell.Status(t.Context(), &cellv1.StatusRequest{})
	return err
}

func (a api) opened(t *testing.T) (*cellv1.OpenResponse, error) {
	t.Helper()
	r, err := a.Open(t.Context(), &cellv1.OpenRequest{Ttl: durationpb.New(30 * time.Second)})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// parks keeps a session alive by calls that are parked, a minute each, and returns why that ended.
func (a api) parks(t *testing.T, session string) error {
	cursor := ""
	for {
		r, err := a.KeepAlive(t.Context(), &cellv1.KeepAliveRequest{Session: session, Cursor: cursor})
		if err != nil {
			return err
		}
		cursor = r.Cursor
	}
}

// TestPrincipalsFile: what is wrong in the file is refused (P10), with the place.
func TestPrincipalsFile(t *testing.T) {
	_, one := newToken(time.Now().Add(time.Hour))
	_, two := newToken(time.Now().Add(time.Hour))
	_, three := newToken(time.Now().Add(time.Hour))
	_, over := newToken(time.Now().Add(-time.Hour))
	entry := func(tokens ...bearer) string {
		text, _ := json.Marshal(principalsFile{[]principal{{Name: "a", Tokens: tokens}}})
		return string(text)
	}
	for text, says := range map[string]string{
		`{"principals": [{"name": "a", "rights": [{"prefix": "b", "right": "write"}]}]}`: "",
		entry(one, two):        "",
		entry(one, two, over):  "",
		entry(one, two, three): "at most 2",
		entry(one, one):        "twice",
		`{"principals": [{"name": "a"}, {"name": "a"}]}`:                                  "twice",
		`{"principals": [{"name": ""}]}`:                                                  "0 bytes",
		`{"principals": [{"name": "a\nb"}]}`:                                              "text",
		`{"principals": [{"name": "a", "right": "x"}]}`:                                   "unknown field",
		`{"principals": [{"name": "a", "rights": [{"prefix": "b", "right": "all"}]}]}`:    "unknown",
		`{"principals": [{"name": "a", "rights": [{"prefix": "/b/", "right": "read"}]}]}`: "prefix",
		`{"principals": [{"name": "a", "tokens": [{"sha256": "00"}]}]}`:                   "64 hexadecimal",
		`{"principals": [{"name": "a", "tokens": [{"sha256": "` + one.SHA256 + `"}]}]}`:   "expires",
		`{"principals": [{"name": "a", "limits": {"sessions": -1}}]}`:                     "negative",
		`{"principals": [null]}`:                                                          "0 bytes",
		`{"principals": []} {}`:                                                           "follows",
		`[]`:                                                                              "cannot unmarshal",
	} {
		_, err := parsePrincipals([]byte(text), time.Now())
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	p := newPeople(t)
	p.add(t, "a")
	if err := os.Chmod(p.file, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := readPrincipals(p.file); err == nil || !strings.Contains(err.Error(), "chmod") {
		t.Errorf("a file that everybody may write: %v", err)
	}
}
