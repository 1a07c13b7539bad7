package zklock

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// The layout is Curator's, of 5.5 and newer. A name is the path PREFIX/NAME. A mutex and the two
// halves of a read-write lock have a node each in it; a semaphore has LEASES below it, and LOCKS, the
// mutex that those take in turn who want leases:
//
//	PREFIX/NAME/_c_GUID-lock-0000000007          Mutex
//	PREFIX/NAME/_c_GUID-__WRIT__0000000008       RWMutex.Write
//	PREFIX/NAME/_c_GUID-__READ__0000000009       RWMutex.Read
//	PREFIX/NAME/locks/_c_GUID-lock-0000000000    wants leases
//	PREFIX/NAME/leases/_c_GUID-lease-0000000000  one permit
//	PREFIX/.holdfast/sessions/HEX                a session's own node
const (
	stemLock  = "lock-"
	stemLatch = "latch-" // of LeaderLatch
	stemWrite = "__WRIT__"
	stemRead  = "__READ__"
	stemLease = "lease-"

	locksDir  = "locks"
	leasesDir = "leases"
	ownDir    = ".holdfast"
)

// layout maps names to paths.
type layout struct {
	prefix string // "" or /a/b
	latch  bool   // mutexes are those of LeaderLatch
}

// newLayout checks a prefix: a path without the slash at its start, "" or a/b.
func newLayout(prefix string, latch bool) (layout, error) {
	l := layout{latch: latch}
	if prefix != "" {
		if err := checkPath(prefix); err != nil {
			return l, fmt.Errorf("prefix %w", err)
		}
		l.prefix = "/" + prefix
	}
	return l, nil
}

func (l *layout) path(name string) string   { return l.prefix + "/" + name }
func (l *layout) locks(name string) string  { return l.path(name) + "/" + locksDir }
func (l *layout) leases(name string) string { return l.path(name) + "/" + leasesDir }
func (l *layout) own() string               { return l.prefix + "/" + ownDir }
func (l *layout) sessions() string          { return l.own() + "/sessions" }

// session is the path of a session's own node.
func (l *layout) session(id int64) string {
	return l.sessions() + "/" + strconv.FormatUint(uint64(id), 16)
}

// stem returns the stem of the node of a hold that is no semaphore's.
func (l *layout) stem(r *driver.Request) string {
	switch {
	case r.Mode == driver.Shared:
		return stemRead
	case r.RW:
		return stemWrite
	case l.latch:
		return stemLatch
	}
	return stemLock
}

// checkName refuses, before any I/O, names that Curator refuses, and those that would be confused
// with nodes of the layout (P10). To the caller they are what the store cannot do.
func (l *layout) checkName(name string) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	if err := checkPath(name); err != nil {
		return fmt.Errorf("name %w: %w", err, driver.ErrUnsupported)
	}
	if l.prefix == "" && (name == "zookeeper" || strings.HasPrefix(name, "zookeeper/")) {
		return fmt.Errorf("name %q is below /zookeeper, which is ZooKeeper's own: %w", name, driver.ErrUnsupported)
	}
	if last := path.Base(name); last != name && (last == locksDir || last == leasesDir) {
		return fmt.Errorf("name %q ends in %q, which is a part of a semaphore in Curator's layout: %w", name, last, driver.ErrUnsupported)
	}
	for element := range strings.SplitSeq(name, "/") {
		if _, isEntry := parseEntry(element); isEntry {
			return fmt.Errorf("name %q has the element %q, which looks like a node of a lock in Curator's layout: %w",
				name, element, driver.ErrUnsupported)
		}
	}
	return nil
}

// checkPath refuses what no path of Curator and ZooKeeper has. Its errors begin with the path.
func checkPath(path string) error {
	for element := range strings.SplitSeq(path, "/") {
		switch element {
		case "":
			return fmt.Errorf("%q has an empty element: no slash at the start or the end, and no two together", path)
		case ".", "..":
			return fmt.Errorf("%q has the element %q, which ZooKeeper refuses", path, element)
		case ownDir:
			return fmt.Errorf("%q has the element %q, which is Holdfast's own", path, element)
		}
	}
	for i, c := range path {
		if refusedRune(c) {
			return fmt.Errorf("%q has the character %U at byte %d, which ZooKeeper refuses", path, c, i)
		}
	}
	return nil
}

// refusedRune reports whether Curator or the server refuses a path with it. Go's decoding makes
// U+FFFD, which is among them, of what is not valid UTF-8.
func refusedRune(c rune) bool {
	return c <= 0x1f || c >= 0x7f && c <= 0x9f || c >= 0xd800 && c <= 0xf8ff || c >= 0xfff0
}

// guidOf returns how the names of an owner's nodes begin: with a GUID, so that they can be found again after a lost
// answer, as Curator's protected create. An owner of 32 hexadecimal digits is its own.
func guidOf(owner string) string {
	h := owner
	if b, err := hex.DecodeString(owner); err != nil || len(b) != 16 || strings.ToLower(owner) != owner {
		sum := sha256.Sum256([]byte(owner))
		h = hex.EncodeToString(sum[:16])
	}
	return "_c_" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:] + "-"
}

// entry is one node of a lock, held or waiting, of any client.
type entry struct {
	name string // the last element of its path
	stem string
	seq  int32 // the server's number; after 2^31-1 comes -2^31
}

// stems are those of all nodes that are entries.
var stems = []string{stemLock, stemWrite, stemRead, stemLease, stemLatch}

// parseEntry reads the name of a node. What does not end in a stem and a number as the server writes it is no entry: it
// may belong to a longer name.
func parseEntry(name string) (entry, bool) {
	for _, stem := range stems {
		if strings.Contains(name, stem) {
			e := entry{name: name, stem: stem}
			n, err := strconv.ParseInt(e.digits(), 10, 32)
			if e.seq = int32(n); err == nil && e.digits() == fmt.Sprintf("%010d", n) {
				return e, true
			}
		}
	}
	return entry{}, false
}

// digits returns the number as the server writes it.
func (e *entry) digits() string { return e.name[strings.LastIndex(e.name, e.stem)+len(e.stem):] }

// owner returns what an operator sees as the owner: the GUID's digits, or of nodes without one the node's name.
func (e *entry) owner() string {
	if rest, ok := strings.CutPrefix(e.name, "_c_"); ok {
		digits := strings.ReplaceAll(rest[:max(0, len(rest)-len(e.digits())-len(e.stem))], "-", "")
		if b, err := hex.DecodeString(digits); err == nil && len(b) == 16 {
			return digits
		}
	}
	return e.name
}

// mode returns how a node that is not a semaphore's takes its name.
func (e *entry) mode() driver.Mode {
	if e.stem == stemRead {
		return driver.Shared
	}
	return driver.Exclusive
}

// compareEntries orders entries as the server made them. The server's number wraps from 2^31-1 to
// -2^31, so the difference decides, which is right while those that are there at the same time are
// less than 2^31 apart. A downgraded hold has its writer's number, and comes after it.
func compareEntries(a, b entry) int {
	return cmp.Or(int(a.seq-b.seq), cmp.Compare(a.mode(), b.mode()), cmp.Compare(a.name, b.name))
}

// children is what the nodes in a name's path say.
type children struct {
	entries   []entry // in order
	semaphore bool    // there are locks or leases, which may be empty
}

// parseChildren reads the children of a name.
func parseChildren(names []string) children {
	c := children{entries: make([]entry, 0, len(names))}
	for _, name := range names {
		if name == locksDir || name == leasesDir {
			c.semaphore = true
		} else if e, ok := parseEntry(name); ok {
			c.entries = append(c.entries, e)
		}
	}
	slices.SortFunc(c.entries, compareEntries)
	return c
}

// errGone says that the own node is not among the children.
var errGone = errors.New("the node is gone")

// before returns the entries before one's own, which is found by its name.
func before(entries []entry, own string) ([]entry, error) {
	if i := slices.IndexFunc(entries, func(e entry) bool { return e.name == own }); i >= 0 {
		return entries[:i], nil
	}
	return nil, errGone
}

// blocker returns the name of the last of the entries before a request's that keeps it out, or "": of a
// reader the nearest writer, else the nearest entry.
func blocker(before []entry, mode driver.Mode) string {
	for i := len(before) - 1; i >= 0; i-- {
		if mode != driver.Shared || before[i].mode() != driver.Shared {
			return before[i].name
		}
	}
	return ""
}

// holders returns how many of the entries of a name, from the first, hold it.
func holders(entries []entry) int {
	n := slices.IndexFunc(entries, func(e entry) bool { return e.mode() != driver.Shared })
	if n < 0 {
		return len(entries)
	}
	return max(1, n)
}

// tokenLine begins the second line of the data of a downgraded hold, which says its token: the node is newer
// than the hold. A note has no line breaks.
const tokenLine = "\ntoken "

// downgradedData returns the data of a downgraded hold's node.
func downgradedData(note string, token driver.Token) []byte {
	return []byte(note + tokenLine + strconv.FormatInt(int64(token), 10))
}

// parseData reads the data of a node: the note, and the token if it says one, else 0.
func parseData(data []byte) (note string, token driver.Token) {
	text := strings.ToValidUTF8(string(data), "�")
	note, line, ok := strings.Cut(text, tokenLine)
	n, err := strconv.ParseInt(line, 10, 64)
	if !ok || err != nil || n <= 0 || n >= 1<<53 {
		return text, 0
	}
	return note, driver.Token(n)
}
