package zksession

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

const (
	timeout = 10 * time.Second
	second  = driver.Instant(time.Second)
)

func TestSession(t *testing.T) {
	s := Trust{Timeout: timeout}
	if s.Trusted(0) || s.Until() != 0 {
		t.Error("a session of which nothing is known is trusted")
	}
	s.Answered(Read, true, 5*second)
	s.Answered(Write, false, 5*second)
	if s.Trusted(5 * second) {
		t.Error("a read, or a write by way of a follower, counts")
	}
	s.Answered(Write, true, 5*second)
	s.Answered(Write, true, 4*second)
	if !s.Trusted(15*second-1) || s.Trusted(15*second) {
		t.Errorf("it is not trusted until its timeout after the last write: until %v", s.Until())
	}
	if s.End(); s.Trusted(6 * second) {
		t.Error("it is trusted though it has expired")
	}
	s = Trust{Timeout: timeout, AnyServer: true}
	if s.Answered(Read, false, 5*second); !s.Trusted(6 * second) {
		t.Error("a ping does not count where the leader takes no clients")
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		a                Asked
		withdrawn, ended Verdict
	}{
		{Asked{}, Again, Again},
		{Asked{Read: true}, Again, Again}, // an old leader may have answered
		{Asked{Written: true}, Again, Again},
		{Asked{Written: true, Read: true}, Done, Done},
		{Asked{Written: true, Read: true, There: true}, Delete, Again},
		{Asked{Read: true, There: true}, Again, Again},
		{Asked{Expired: true}, Elsewhere, Again},
		{Asked{Written: true, Expired: true}, Elsewhere, Again},
	} {
		if w, e := Withdrawn(c.a), Ended(c.a); w != c.withdrawn || e != c.ended {
			t.Errorf("%+v: %d and %d, want %d and %d", c.a, w, e, c.withdrawn, c.ended)
		}
	}
}
