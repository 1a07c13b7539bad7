package redislock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// layout names keys and channels. All keys of a name have the name in braces, the hash tag by which
// Redis Cluster keeps them together. Braces in the name itself are escaped.
//
//	PREFIX:{NAME}         the record: the last token and the holds
//	PREFIX:{NAME}:queue   the owners of the places, in order
//	PREFIX:{NAME}:until   the same, by when the places end
//	PREFIX:{NAME}:places  what the owners have asked for
//	PREFIX:{NAME}:gone    tombstones: why requests of some owners are refused
//	PREFIX:{NAME}:setnx   layout setnx: the record; the lock itself is at NAME
//	PREFIX:{TAG}:NAME:setnx    layout setnx, of a name with braces or percent signs: see setnxRecord
//	…:setnx:OWNER         layout setnx: the tombstone of an owner
//	PREFIX:{TAG}:gone:OWNER    layout redisson: the tombstone of an owner
//	PREFIX:store          which store this is
//	PREFIX:life:{N}       the life of a server, in a cluster of the one that has the key's slot: lua/life.lua
//	PREFIX:wake:CLIENT    the channel of a client
type layout struct{ prefix string }

var (
	escaper   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescaper = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
	// literal escapes what has a meaning in a pattern of SCAN.
	literal = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)
)

func (l layout) store() string             { return l.prefix + ":store" }
func (l layout) life(n int) string         { return l.prefix + ":life:{" + strconv.Itoa(n) + "}" }
func (l layout) channel(id string) string  { return l.prefix + ":wake:" + id }
func (l layout) record(name string) string { return string(l.appendRecord(nil, name)) }
func (l layout) pattern(name string) string {
	return literal.Replace(l.prefix+":{"+escaper.Replace(name)) + "*"
}

// checkName refuses a name that is one of Holdfast's own keys, in a layout where a lock is at its bare name: it would
// be in the way of another name's lock.
func (l layout) checkName(name string) error {
	if strings.HasPrefix(name, l.prefix+":") {
		return fmt.Errorf("name %.40q begins with %s:, as the keys beside locks do: %w: choose another", name, l.prefix, driver.ErrUnsupported)
	}
	return nil
}

func (l layout) appendRecord(b []byte, name string) []byte {
	return append(append(append(append(b, l.prefix...), ":{"...), escaper.Replace(name)...), '}')
}

// suffixes of the keys of a name, in the order of KEYS in the scripts.
var suffixes = [...]string{"", ":queue", ":until", ":places", ":gone"}

func (l layout) keys(name string) []string {
	record, keys := l.record(name), make([]string, len(suffixes))
	for i, suffix := range suffixes {
		keys[i] = record + suffix
	}
	return keys
}

// name returns the name whose record the key is, if it is one.
func (l layout) name(key string) (string, bool) {
	name, ok := strings.CutPrefix(key, l.prefix+":{")
	name, rest, closed := strings.Cut(name, "}")
	return unescaper.Replace(name), ok && closed && rest == ""
}
