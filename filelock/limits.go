//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// What a record may say, at most. Package holdfast asks for less. Sums and
// differences of two such times do not overflow.
const (
	maxOwner    = 1 << 10   // bytes
	maxNote     = 1 << 16   // bytes
	maxCount    = 1<<31 - 1 // of slots and permits
	maxToken    = 1<<53 - 1
	maxInstant  = 1<<62 - 1 // either way
	maxDuration = 1 << 61
)

// checkRequest returns an error for a request that no record can say (P10).
func checkRequest(r *driver.Request) error {
	if err := driver.CheckName(r.Name); err != nil {
		return err
	}
	switch {
	case int(r.Mode) >= len(modes):
		return fmt.Errorf("unknown mode %d", r.Mode)
	case r.Owner == "" || len(r.Owner) > maxOwner:
		return fmt.Errorf("an owner of %d bytes: 1 to %d are allowed", len(r.Owner), maxOwner)
	case len(r.Note) > maxNote:
		return fmt.Errorf("a note of %d bytes: at most %d are allowed", len(r.Note), maxNote)
	case r.Slots < 0 || r.Slots > maxCount || r.Permits < 0 || r.Permits > maxCount:
		return fmt.Errorf("%d of %d slots", r.Permits, r.Slots)
	case r.Tokens < 0 || r.Tokens > tokenBlock:
		return fmt.Errorf("%d tokens: at most %d are allowed", r.Tokens, tokenBlock)
	}
	for _, d := range []time.Duration{r.TTL, r.LockDelay, r.MinHold} {
		if d < 0 || d > maxDuration {
			return fmt.Errorf("a duration of %v: 0 to %v is allowed", d, time.Duration(maxDuration))
		}
	}
	return nil
}

func (in *scanner) name() string {
	name := in.text()
	if err := driver.CheckName(name); err != nil {
		in.fail(err.Error())
	}
	return name
}

// bounded reads a text of at most this many bytes.
func (in *scanner) bounded(most int) string {
	text := in.text()
	if len(text) > most {
		in.fail("a text is too long")
	}
	return text
}

// client reads the id of a client: it names a file.
func (in *scanner) client() string {
	id := in.text()
	if id != "" && !validID(id) {
		in.fail(fmt.Sprintf("malformed client %.40q", id))
		return ""
	}
	return id
}

func (in *scanner) between(least, most int64) int64 {
	i := in.int()
	if i < least || i > most {
		in.fail("a number is out of range")
		return 0
	}
	return i
}

func (in *scanner) count() int { return int(in.between(0, maxCount)) }

func (in *scanner) token() driver.Token { return driver.Token(in.between(0, maxToken)) }

func (in *scanner) instant() driver.Instant {
	return driver.Instant(in.between(-maxInstant, maxInstant))
}

func (in *scanner) duration() time.Duration {
	return time.Duration(in.between(0, maxDuration))
}
