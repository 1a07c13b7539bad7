//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/record"
)

// state is what the file of a name holds. An operation reads the head of the queue and the place
// that it is about, and copies the lines of the others as they are (rest): so a crowd costs it
// little more than the bytes of its lines.
type state struct {
	record.Record
	name   string
	last   driver.Token // the last token that was given out or reserved
	broken []broken

	rest []byte // the lines of the places that are not in Queue, as long as the operation lasts
	far  span   // that of Far in rest
	err  error  // why a line could not be read
}

// span is a part of a text; empty: there is none.
type span struct{ start, end int }

// broken is a hold that an operator broke: its owner is told so when it comes
// back, as long as it may believe that it holds.
type broken struct {
	owner string
	until driver.Instant
}

// idle reports whether the file says nothing that has to be remembered. The
// last token need not be: see store.token.
func (s *state) idle() bool { return s.Idle() && len(s.broken) == 0 }

// quiet reports whether nobody holds the name or waits for it. Then nobody may
// come back to it, and it is idle or will be.
func (s *state) quiet() bool {
	for i := range s.Holds {
		if !s.Holds[i].Closed {
			return false
		}
	}
	return len(s.Queue)+s.Unloaded == 0
}

// wasBroken reports whether an operator broke the owner's hold.
func (s *state) wasBroken(owner string) bool {
	for _, b := range s.broken {
		if b.owner == owner {
			return true
		}
	}
	return false
}

// The text form has one line for each thing, its fields separated by single
// spaces: numbers in decimal, times in nanoseconds of the store's time, texts
// quoted as in Go. The letters of the modes are those of driver.Sequencer.
//
//	name "orders/42"
//	last 1795227219000000
//	hold <token> <taken> <expires> <since> <valid> <request>
//	claim … as hold: handed over, and not yet renewed
//	closed … as hold: it has no owner any more
//	broken <until> "owner"
//	wait <joined> <seen> <asked> <request>
//	end
//
// A place ends two polls after the instant "seen", which is the future for one far behind: so
// releases read each other's records that confirm all places at each poll. They write broken
// holds behind the queue.
//
// A request is: mode slots permits ttl lock-delay min-hold fair|unfair "owner" "client" "note".
// Permits of an exclusive request is how many tokens it asks for (driver.Request.Tokens),
// so that releases that reserve none can read the record. Nobody is granted anything beside
// an exclusive hold, so the last token is that of its block.

const modes = "xsp"

// appendState appends the text form.
func appendState(b []byte, s *state) []byte {
	b = append(appendText(append(b, "name "...), s.name), '\n')
	b = append(strconv.AppendInt(append(b, "last "...), int64(s.last), 10), '\n')
	for i := range s.Holds {
		h := &s.Holds[i]
		word := "hold"
		switch {
		case h.Closed:
			word = "closed"
		case h.Claim:
			word = "claim"
		}
		b = appendInts(append(b, word...), int64(h.Token), int64(h.Taken), int64(h.Expires), int64(h.Since), int64(h.Valid))
		b = appendRequest(b, &h.Request, h.Client)
	}
	for _, w := range s.broken {
		b = append(appendInts(append(b, "broken"...), int64(w.until)), ' ')
		b = append(appendText(b, w.owner), '\n')
	}
	for i := range s.Queue {
		b = appendPlace(b, &s.Queue[i])
	}
	switch {
	case s.far == span{}:
		b = append(b, s.rest...)
		if s.Far != nil { // a new one
			b = appendPlace(b, s.Far)
		}
	default:
		b = append(b, s.rest[:s.far.start]...)
		if s.Far != nil {
			b = appendPlace(b, s.Far)
		}
		b = append(b, s.rest[s.far.end:]...)
	}
	return append(b, "end\n"...)
}

func appendPlace(b []byte, p *record.Place) []byte {
	b = appendInts(append(b, "wait"...), int64(p.Joined), int64(p.Until.Add(-placeLife)), int64(p.Asked))
	return appendRequest(b, &p.Request, p.Client)
}

// placeLife is how long a place lasts from the instant "seen" on.
const placeLife = 2 * poll

func appendInts(b []byte, ints ...int64) []byte {
	for _, i := range ints {
		b = strconv.AppendInt(append(b, ' '), i, 10)
	}
	return b
}

func appendRequest(b []byte, r *driver.Request, client string) []byte {
	b = append(b, ' ', modes[r.Mode])
	permits := r.Permits
	if r.Mode == driver.Exclusive {
		permits = r.Tokens
	}
	b = appendInts(b, int64(r.Slots), int64(permits), int64(r.TTL), int64(r.LockDelay), int64(r.MinHold))
	fair := " fair "
	if r.Unfair {
		fair = " unfair "
	}
	b = appendText(append(b, fair...), r.Owner)
	b = appendText(append(b, ' '), client)
	b = appendText(append(b, ' '), r.Note)
	return append(b, '\n')
}

// parseState reads the text form. Suppose somebody who may write in the directory
// makes up a record: what it says is not used for anything but the locks of this
// directory, and each part is checked here, where it is decoded.
func parseState(text string) (*state, error) {
	in := scanner{rest: text}
	s := &state{}
	in.word("name")
	s.name = in.name()
	in.end()
	in.word("last")
	s.last = in.token()
	in.end()
	for in.err == nil {
		switch word := in.next(); word {
		case "hold", "claim", "closed":
			h := record.Hold{
				Closed: word == "closed", Claim: word == "claim", Token: in.token(), Taken: in.instant(),
				Expires: in.instant(), Since: in.instant(), Valid: in.duration(),
			}
			h.Request, h.Client = in.request(s.name)
			s.Holds = append(s.Holds, h)
		case "wait":
			s.Queue = append(s.Queue, in.place(s.name))
		case "broken":
			s.broken = append(s.broken, broken{until: in.instant(), owner: in.bounded(maxOwner)})
			in.end()
		case "end":
			in.end()
			if in.err == nil && in.rest == "" {
				s.restoreBlocks()
				return s, nil
			}
			in.fail("something after the end")
		default:
			in.fail(fmt.Sprintf("unknown line %.20q", word))
		}
	}
	return nil, in.err
}

// parseHead reads the text form but for the places behind the first one. They keep their lines,
// which are a part of the text.
func parseHead(text []byte) (*state, error) {
	head, rest := splitQueue(text)
	if len(rest) == 0 {
		return parseState(string(text))
	}
	s, err := parseState(string(append(head[:len(head):len(head)], "end\n"...)))
	if err == nil {
		s.rest, s.Unloaded = rest, bytes.Count(rest, newline)
	}
	return s, err
}

var newline = []byte("\n")

// splitQueue returns the text before the second place, and the lines from there on without the
// end. The rest is empty where the queue has no second place or is not the last part of the text.
func splitQueue(text []byte) (head, rest []byte) {
	first := bytes.Index(text, []byte("\nwait "))
	body, ended := bytes.CutSuffix(text, []byte("\nend\n"))
	if first < 0 || !ended {
		return text, nil
	}
	body = text[:len(body)+1]
	end := first + 1 + lineLen(body[first+1:])
	if !bytes.HasPrefix(body[end:], []byte("wait ")) || !bytes.HasPrefix(lastLine(body), []byte("wait ")) {
		return text, nil
	}
	return body[:end], body[end:]
}

// lineLen returns the length of the line that the text begins with. It is more than 0.
func lineLen(text []byte) int {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return i + 1
	}
	return len(text)
}

// lastLine returns the last line of a text, which ends with one.
func lastLine(text []byte) []byte {
	return text[bytes.LastIndexByte(text[:max(0, len(text)-1)], '\n')+1:]
}

// parsePlace reads the line of a place.
func parsePlace(line []byte, name string) (record.Place, error) {
	in := scanner{rest: string(line)}
	in.word("wait")
	p := in.place(name)
	if in.err == nil && in.rest != "" {
		in.fail("more than a line")
	}
	return p, in.err
}

// restoreBlocks tells each exclusive hold the last token of its block.
func (s *state) restoreBlocks() {
	for i := range s.Holds {
		s.last = max(s.last, s.Holds[i].Token)
	}
	for i := range s.Holds {
		if h := &s.Holds[i]; h.Mode == driver.Exclusive && !h.Closed {
			h.Last = s.last
		}
	}
}

// scanner reads fields off a text. After its first error it returns zeros.
type scanner struct {
	rest string
	err  error
}

func (in *scanner) fail(what string) {
	if in.err == nil {
		in.err = errors.New(what)
	}
	in.rest = ""
}

// next returns the next field and takes the space behind it.
func (in *scanner) next() string {
	for i := 0; i < len(in.rest); i++ {
		if c := in.rest[i]; c == ' ' || c == '\n' {
			field := in.rest[:i]
			in.rest = in.rest[i:]
			in.space()
			return field
		}
	}
	in.fail("unexpected end")
	return ""
}

// space takes one space; the end of a line is left for end.
func (in *scanner) space() {
	in.rest = strings.TrimPrefix(in.rest, " ")
}

func (in *scanner) end() {
	if !strings.HasPrefix(in.rest, "\n") {
		in.fail("a line has too many fields")
		return
	}
	in.rest = in.rest[1:]
}

func (in *scanner) word(want string) {
	if got := in.next(); got != want {
		in.fail(fmt.Sprintf("%.20q where %q belongs", got, want))
	}
}

func (in *scanner) int() int64 {
	field := in.next()
	i, err := strconv.ParseInt(field, 10, 64)
	if err != nil || field[0] == '+' || field != "0" && strings.TrimPrefix(field, "-")[0] == '0' {
		in.fail("malformed number")
		return 0
	}
	return i
}

func (in *scanner) text() string {
	if n := unescaped(in.rest); n > 0 {
		text := in.rest[1 : n-1]
		in.rest = in.rest[n:]
		in.space()
		return text
	}
	quoted, err := strconv.QuotedPrefix(in.rest)
	if err != nil || quoted[0] != '"' {
		in.fail("malformed text")
		return ""
	}
	in.rest = in.rest[len(quoted):]
	in.space()
	text, err := strconv.Unquote(quoted)
	if err != nil {
		in.fail("malformed text")
	}
	return text
}

// unescaped returns the length of the quoted text, of printable ASCII without
// escapes, that s begins with, and 0 if it begins with no such thing. It spares
// almost all texts the general way, which takes several times as long.
func unescaped[T string | []byte](s T) int {
	if len(s) == 0 || s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c < ' ' || c > '~' || c == '\\':
			return 0
		}
	}
	return 0
}

// appendText is strconv.AppendQuote, with the same short cut.
func appendText(b []byte, text string) []byte {
	start := len(b)
	b = append(append(append(b, '"'), text...), '"')
	if unescaped(b[start:]) == len(b)-start {
		return b
	}
	return strconv.AppendQuote(b[:start], text)
}

func (in *scanner) place(name string) (p record.Place) {
	p.Joined = in.instant()
	p.Until = driver.Instant(in.between(-maxInstant, maxInstant-int64(placeLife))).Add(placeLife)
	p.Asked = in.instant()
	p.Request, p.Client = in.request(name)
	return p
}

func (in *scanner) request(name string) (r driver.Request, client string) {
	r.Name = name
	letter := in.next()
	mode := strings.Index(modes, letter)
	if len(letter) != 1 || mode < 0 {
		in.fail("unknown mode")
		return r, ""
	}
	r.Mode = driver.Mode(mode)
	r.Slots, r.Permits = in.count(), in.count()
	if r.Mode == driver.Exclusive {
		r.Tokens, r.Permits = min(r.Permits, tokenBlock), 0
	}
	r.TTL, r.LockDelay, r.MinHold = in.duration(), in.duration(), in.duration()
	switch in.next() {
	case "fair":
	case "unfair":
		r.Unfair = true
	default:
		in.fail("neither fair nor unfair")
	}
	r.Owner, client, r.Note = in.bounded(maxOwner), in.client(), in.bounded(maxNote)
	in.end()
	return r, client
}
