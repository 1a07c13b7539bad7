//go:build soak

package redislock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// setnxTest has a driver of the layout SetNX, and a stranger: a program that knows SET NX PX only.
type setnxTest struct {
	*testing.T
	setnx
	stranger Conn
}

func newSetNXTest(t *testing.T) *setnxTest {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	d, err := New(t.Context(), dialResp(t, server.Addr), &Options{Layout: SetNX})
	testserver.Must(t, err)
	t.Cleanup(func() { d.Close() })
	stranger := dialResp(t, server.Addr)
	t.Cleanup(func() { stranger.Close() })
	return &setnxTest{t, d.(setnx), stranger}
}

func (s *setnxTest) do(args ...string) any {
	s.Helper()
	r := s.stranger.Do(s.Context(), []Command{{Args: args}})[0]
	if r.Err != nil {
		s.Fatalf("%.80q: %v", args, r.Err)
	}
	return r.Value
}

// strangerTakes takes the name as the documentation of Redis says.
func (s *setnxTest) strangerTakes(value string) bool {
	s.Helper()
	return s.do("SET", "n", value, "NX", "PX", "10000") == "OK"
}

// strangerReleases releases it as the documentation of Redis says.
func (s *setnxTest) strangerReleases(value string) bool {
	s.Helper()
	const script = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
	return s.do("EVAL", script, "1", "n", value) == int64(1)
}

func (s *setnxTest) request(owner string) driver.Request {
	return driver.Request{Name: "n", Owner: owner, TTL: 10 * time.Second, Note: "a note"}
}

func (s *setnxTest) take(req driver.Request) driver.Grant {
	s.Helper()
	g, err := s.Try(s.Context(), req)
	if err != nil {
		s.Fatalf("Try of a free name: %v", err)
	}
	return g
}

func (s *setnxTest) refused(want error) *driver.HeldError {
	s.Helper()
	_, err := s.Try(s.Context(), s.request("another"))
	if !errors.Is(err, want) {
		s.Errorf("P1: Try returned %v, not %v", err, want)
	}
	held := &driver.HeldError{}
	errors.As(err, &held)
	return held
}

func (s *setnxTest) renewed(g driver.Grant, want error) {
	s.Helper()
	if err := s.Renew(s.Context(), []driver.Grant{g})[0].Err; !errors.Is(err, want) {
		s.Errorf("Renew returned %v, not %v", err, want)
	}
}

func (s *setnxTest) released(g driver.Grant, want error) {
	s.Helper()
	if err := s.Release(s.Context(), []driver.Grant{g})[0]; !errors.Is(err, want) {
		s.Errorf("Release returned %v, not %v", err, want)
	}
}

func (s *setnxTest) info() driver.Info {
	s.Helper()
	info, err := s.Inspect(s.Context(), "n")
	if err != nil {
		s.Fatal(err)
	}
	return info
}

// TestSetNX: Holdfast and a stranger exclude each other, and change nothing of each other's.
func TestSetNX(t *testing.T) {
	for name, check := range map[string]func(*setnxTest){
		"a stranger holds": func(s *setnxTest) {
			s.strangerTakes("theirs")
			if held := s.refused(driver.ErrHeld); held.ExpiresIn <= 0 || held.ExpiresIn > 10*time.Second {
				s.Errorf("the lock ends in %v", held.ExpiresIn)
			}
			info := s.info()
			if len(info.Holders) != 1 || info.Holders[0].Owner != `"theirs"` || info.Holders[0].Token != 0 ||
				info.Holders[0].Note == "" || info.Holders[0].Expires <= 0 {
				s.Errorf("Inspect shows %+v", info)
			}
			if err := s.Break(s.Context(), "n", 0); !errors.Is(err, driver.ErrNotHeld) {
				s.Errorf("P4: Break of a stranger's lock returned %v", err)
			}
			s.strangerReleases("theirs")
			s.take(s.request("owner"))
		},
		"Holdfast holds": func(s *setnxTest) {
			g := s.take(s.request("owner"))
			if s.strangerTakes("theirs") {
				s.Error("P1: a stranger took what Holdfast holds")
			}
			if s.strangerReleases("theirs") {
				s.Error("P4: a stranger freed what Holdfast holds")
			}
			s.renewed(g, nil)
			if s.do("GET", "n") != "owner" {
				s.Errorf("the value is %v", s.do("GET", "n"))
			}
			s.released(g, nil)
			if !s.strangerTakes("theirs") {
				s.Error("P4: the name is not free after the release")
			}
		},
		"expired, then a stranger's": func(s *setnxTest) {
			brief := s.request("owner")
			brief.TTL = 50 * time.Millisecond
			g := s.take(brief)
			for !s.strangerTakes("theirs") {
				time.Sleep(time.Millisecond)
			}
			s.renewed(g, driver.ErrNotHeld)
			s.released(g, driver.ErrNotHeld)
			g.Token = 0
			s.released(g, nil) // a withdrawal
			if rest := s.do("PTTL", "n").(int64); s.do("GET", "n") != "theirs" || rest < 9000 {
				s.Errorf("P4: the stranger has %v for %d ms", s.do("GET", "n"), rest)
			}
		},
		"a stranger's value begins like ours": func(s *setnxTest) {
			g := s.take(s.request("owner"))
			s.do("SET", "n", "owner and more", "PX", "10000")
			s.renewed(g, driver.ErrNotHeld)
			s.released(g, driver.ErrNotHeld)
			if s.do("GET", "n") != "owner and more" {
				s.Error("P4: a stranger's lock was freed")
			}
		},
		"a long value": func(s *setnxTest) {
			s.do("SET", "n", strings.Repeat("x\x00", 1<<20))
			s.refused(driver.ErrHeld)
			if info := s.info(); len(info.Holders[0].Owner) > 4*512+2 || strings.Contains(info.Holders[0].Owner, "\x00") {
				s.Errorf("Inspect shows %d bytes", len(info.Holders[0].Owner))
			}
		},
		"other data at the name": func(s *setnxTest) {
			s.do("RPUSH", "n", "data")
			s.refused(driver.ErrMismatch)
			if !s.info().Idle() {
				s.Errorf("Inspect shows %+v", s.info())
			}
			g := driver.Grant{Request: s.request("owner"), Token: 1}
			s.renewed(g, driver.ErrNotHeld)
			s.released(g, driver.ErrNotHeld)
			if s.do("LLEN", "n") != int64(1) {
				s.Error("P4: other data were changed")
			}
		},
		"broken": func(s *setnxTest) {
			g := s.take(s.request("owner"))
			if err := s.Break(s.Context(), "n", g.Token+1); !errors.Is(err, driver.ErrNotHeld) {
				s.Errorf("P4: Break with another token returned %v", err)
			}
			if err := s.Break(s.Context(), "n", g.Token); err != nil {
				s.Fatal(err)
			}
			s.strangerTakes("theirs")
			s.renewed(g, driver.ErrBroken)
			s.released(g, driver.ErrBroken)
			if s.do("GET", "n") != "theirs" {
				s.Error("P4: the release of a broken hold freed the next one")
			}
		},
		"listed": func(s *setnxTest) {
			awkward := "{a}%7B:setnx*"
			req := s.request("owner")
			req.Name = awkward
			s.take(req)
			s.strangerTakes("theirs")
			s.refused(driver.ErrHeld)
			var names []string
			for info, err := range s.List(s.Context(), "") {
				if err != nil {
					s.Fatal(err)
				}
				names = append(names, info.Name)
			}
			if len(names) != 1 || names[0] != awkward {
				s.Errorf("List shows %q", names)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(newSetNXTest(t))
		})
	}
}
