//go:build soak

package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// newToldTest is newSetNXTest on a server that tells of keys.
func newToldTest(t *testing.T) *setnxTest {
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--notify-keyspace-events", "Kgx"}})
	d, err := New(t.Context(), dialResp(t, server.Addr), &Options{Layout: SetNX})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	stranger := dialResp(t, server.Addr)
	t.Cleanup(func() { stranger.Close() })
	return &setnxTest{t, d.(setnx), stranger}
}

// listens returns what a waiter of n hears, when the server has confirmed that.
func (s *setnxTest) listens() driver.Wakes {
	s.Helper()
	w := s.Wakes("n")
	if w == nil {
		s.Fatal("the driver does not listen, although the server tells")
	}
	s.Cleanup(w.Stop)
	s.until(w, "the server has not confirmed the channel", w.Sure)
	return w
}

// until takes values from the waiter's channel until ok.
func (s *setnxTest) until(w driver.Wakes, otherwise string, ok func() bool) {
	s.Helper()
	for late := time.After(hanging); !ok(); {
		select {
		case <-w.C():
		case <-late:
			s.Fatal(otherwise)
		}
	}
}

// drain takes the value of the channel, if there is one.
func drain(w driver.Wakes) {
	select {
	case <-w.C():
	default:
	}
}

// rings waits for a value.
func (s *setnxTest) rings(w driver.Wakes, when string) {
	s.Helper()
	select {
	case <-w.C():
	case <-time.After(hanging):
		s.Fatalf("P7: nothing was heard after %s", when)
	}
}

// asked returns how often the server was given a command.
func (s *setnxTest) asked(command string) int {
	s.Helper()
	_, rest, _ := strings.Cut(s.do("INFO", "commandstats").(string), "cmdstat_"+command+":calls=")
	n := 0
	for _, digit := range rest {
		if digit < '0' || digit > '9' {
			break
		}
		n = 10*n + int(digit-'0')
	}
	return n
}

// waits begins an Acquire of n by a client over the driver.
func (s *setnxTest) waits() (acquired chan *holdfast.Lease) {
	s.Helper()
	c, err := holdfast.New(driver.Forward{Driver: s.setnx}, nil)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	acquired = make(chan *holdfast.Lease, 1)
	go func() {
		lease, err := c.Mutex("n", nil).Acquire(s.Context())
		if err != nil && s.Context().Err() == nil {
			s.Errorf("Acquire: %v", err)
		}
		acquired <- lease
	}()
	return acquired
}

func (s *setnxTest) acquires(acquired chan *holdfast.Lease, when string) {
	s.Helper()
	select {
	case lease := <-acquired:
		if err := lease.Release(); err != nil {
			s.Error(err)
		}
	case <-time.After(hanging):
		s.Fatalf("P7: a waiter does not get the name after %s", when)
	}
}

// TestKeyspace: a waiter hears of what other programs do to its name, and of nothing else.
func TestKeyspace(t *testing.T) {
	for name, check := range map[string]func(*setnxTest){
		"a stranger releases": func(s *setnxTest) {
			s.strangerTakes("theirs")
			w := s.listens()
			drain(w)
			s.strangerReleases("theirs")
			s.rings(w, "a stranger's DEL")
		},
		"a lock of a stranger expires": func(s *setnxTest) {
			w := s.listens()
			drain(w)
			s.do("SET", "n", "theirs", "PX", "20")
			s.rings(w, "the expiry")
		},
		"Holdfast releases": func(s *setnxTest) {
			g := s.take(s.request("owner"))
			w := s.listens()
			drain(w)
			s.renewed(g, nil)
			s.released(g, nil)
			s.rings(w, "a release")
		},
		"taken, renewed, and another name": func(s *setnxTest) {
			w := s.listens()
			other := s.Wakes("another")
			defer other.Stop()
			s.until(other, "the server has not confirmed the channel", other.Sure)
			drain(w)
			drain(other)
			s.renewed(s.take(s.request("owner")), nil)
			s.do("SET", "another", "x")
			s.do("DEL", "another")
			s.rings(other, "a DEL")
			select {
			case <-w.C():
				s.Error("a waiter was woken although its name was taken and renewed only")
			default:
			}
		},
		"a stranger releases for a client": func(s *setnxTest) {
			for range 5 {
				s.strangerTakes("theirs")
				acquired := s.waits()
				w := s.listens()
				s.strangerReleases("theirs")
				s.acquires(acquired, "a stranger's DEL")
				w.Stop()
			}
		},
		// Both are driven by the same pauses, so a machine that stands still changes nothing: polls of
		// each 50 to 100 ms beside questions of each 0.5 to 1 s.
		"polls are few": func(s *setnxTest) {
			s.strangerTakes("theirs")
			acquired := s.waits()
			s.listens()
			polls, questions := s.asked("evalsha"), s.asked("config|get")
			for s.asked("config|get") < questions+3 {
				time.Sleep(10 * time.Millisecond)
			}
			if n := s.asked("evalsha") - polls; n > 12 {
				s.Errorf("%d polls while the server was asked three times whether it tells", n)
			}
			s.strangerReleases("theirs")
			s.acquires(acquired, "a stranger's DEL")
		},
		"turned off and on": func(s *setnxTest) {
			s.strangerTakes("theirs")
			acquired := s.waits()
			w := s.listens()
			s.do("CONFIG", "SET", KeyspaceParameter, "")
			s.until(w, "it is not noticed that the server does not tell any more", func() bool { return !w.Sure() })
			s.strangerReleases("theirs")
			s.acquires(acquired, "a DEL that the server does not tell of")
			s.do("CONFIG", "SET", KeyspaceParameter, "KA")
			s.until(w, "it is not noticed that the server tells again", w.Sure)
			s.strangerTakes("theirs")
			drain(w)
			s.strangerReleases("theirs")
			s.rings(w, "a DEL, told again")
		},
		// Released in the moment in which the server is to be asked next whether it tells.
		"turned off, and released at once": func(s *setnxTest) {
			s.strangerTakes("theirs")
			acquired := s.waits()
			s.listens()
			s.do("CONFIG", "SET", KeyspaceParameter, "")
			s.strangerReleases("theirs")
			s.acquires(acquired, "a DEL that the server does not tell of")
		},
		"the connection is lost": func(s *setnxTest) {
			for range 10 {
				s.strangerTakes("theirs")
				w := s.listens()
				drain(w)
				s.do("CLIENT", "KILL", "TYPE", "pubsub")
				s.strangerReleases("theirs") // perhaps untold
				s.until(w, "the loss is not noticed", func() bool { return s.do("PUBSUB", "NUMSUB", "__keyspace@0__:n").([]any)[1] == int64(1) })
				s.until(w, "the server has not confirmed the channel again", w.Sure)
				s.strangerTakes("theirs")
				drain(w)
				s.strangerReleases("theirs")
				s.rings(w, "a DEL after the connection was made again")
				w.Stop()
			}
		},
		"the connection is lost, for a client": func(s *setnxTest) {
			for range 5 {
				s.strangerTakes("theirs")
				acquired := s.waits()
				s.listens()
				s.do("CLIENT", "KILL", "TYPE", "pubsub")
				s.strangerReleases("theirs")
				s.acquires(acquired, "a DEL while the connection was lost")
			}
		},
		"nothing is left": func(s *setnxTest) {
			w := s.Wakes("n")
			s.until(w, "the server has not confirmed the channel", w.Sure)
			w.Stop()
			for late := time.Now().Add(hanging); strings.Contains(s.do("CLIENT", "LIST", "TYPE", "pubsub").(string), "sub="); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(late) {
					s.Fatal("P9: the connection stays when nobody waits")
				}
			}
			if err := s.Close(); err != nil {
				s.Error(err)
			}
			if s.Wakes("n") != nil {
				s.Error("a driver that is closed listens")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(newToldTest(t))
		})
	}
}

// TestKeyspaceOff: where the server does not tell, or does not say whether it does, waiters poll.
func TestKeyspaceOff(t *testing.T) {
	for name, args := range map[string][]string{
		"off":                {"--notify-keyspace-events", ""},
		"by kind of event":   {"--notify-keyspace-events", "EA"},
		"not of deletions":   {"--notify-keyspace-events", "Kx"},
		"not of expiry":      {"--notify-keyspace-events", "Kg"},
		"not to be asked of": {"--notify-keyspace-events", "Kgx", "--rename-command", "CONFIG", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.StartRedis(t, testserver.RedisOptions{Args: args})
			d, err := New(t.Context(), dialResp(t, server.Addr), &Options{Layout: SetNX})
			if err != nil {
				t.Fatal(err)
			}
			stranger := dialResp(t, server.Addr)
			t.Cleanup(func() { stranger.Close() })
			s := &setnxTest{t, d.(setnx), stranger}
			if s.Wakes("n") != nil {
				t.Error("the driver listens, although the server does not tell all that it should")
			}
			s.strangerTakes("theirs")
			acquired := s.waits()
			s.strangerReleases("theirs")
			s.acquires(acquired, "a stranger's DEL")
		})
	}
}
