package cell

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// bearer says in each call who the client is.
type bearer struct {
	next http.RoundTripper
	file string // with the token; "": it does not change

	mu    sync.Mutex
	token string
	read  time.Time // when the file was read last
}

const (
	maxToken      = 4096        // bytes
	rereadTokenIn = time.Second // at the soonest
)

// newBearer returns what says who the client is; nil if nothing does, or a certificate.
func newBearer(c *Config) (*bearer, error) {
	switch {
	case c.Token != "" && c.TokenFile != "":
		return nil, errors.New("a token and a file with one: one of them is right")
	case c.Token == "" && c.TokenFile == "":
		return nil, nil
	case c.TokenFile != "":
		b := &bearer{file: c.TokenFile}
		return b, b.reread()
	}
	return &bearer{token: c.Token}, checkToken(c.Token)
}

// checkToken refuses what cannot stand in a header. Its errors do not show the token.
func checkToken(token string) error {
	if token == "" || len(token) > maxToken {
		return fmt.Errorf("the token has %d bytes: between 1 and %d are right", len(token), maxToken)
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return errors.New("the token has a character that no token has")
		}
	}
	return nil
}

// reread reads the file.
func (b *bearer) reread() error {
	f, err := os.Open(b.file)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	token := string(bytes.TrimSpace(text))
	if err := checkToken(token); err != nil {
		return fmt.Errorf("%s: %w", b.file, err)
	}
	b.token = token
	return nil
}

// say puts the token into the header of a call. If the file cannot be read at present, the token is the one
// that it had.
func (b *bearer) say(h http.Header) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.file != "" && now.Sub(b.read) > rereadTokenIn {
		b.read = now
		_ = b.reread()
	}
	h.Set("Authorization", "Bearer "+b.token)
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	b.say(r.Header)
	return b.next.RoundTrip(r)
}
