package table

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// The layouts, which package etcdlock describes.
const (
	Escaped = "escaped"
	Stock   = "stock"
)

// DefaultPrefix is what keys begin with in the layout Escaped; in Stock it is "".
const DefaultPrefix = "holdfast"

// MaxPrefix is the length of the longest prefix, in bytes.
const MaxPrefix = 256

// Layout says which keys there are.
type Layout struct {
	Stock                  bool
	LocksAt                string // what keys of locks begin with
	TombstonesAt, BrokenAt string
	Version                int  // of the values' format
	Bits                   uint // of a token, below those of the create revision
}

// Token returns the first token of a hold, by its key's create revision. The token grows
// with the revision, so every later hold has a higher one (P3).
func (l *Layout) Token(created int64) driver.Token { return driver.Token(created << l.Bits) }

// Created returns the create revision of the key of the hold that has a token.
func (l *Layout) Created(token driver.Token) int64 { return int64(token) >> l.Bits }

// Block is the most tokens that a hold can have: the next revision's begin there.
func (l *Layout) Block() int { return 1 << l.Bits }

// MaxToken is the highest token (see driver.Token).
const MaxToken = 1<<53 - 1

// CheckRevision refuses a store whose revisions leave no room for tokens.
func (l *Layout) CheckRevision(rev int64) error {
	if l.Bits > 0 && rev > l.Created(MaxToken)/2 {
		return fmt.Errorf("etcd's revision %d is too high for tokens below 2^53: use the layout %q", rev, Stock)
	}
	return nil
}

// NewLayout checks the two options and makes a layout of them.
func NewLayout(kind, prefix string) (Layout, error) {
	switch {
	case kind != "" && kind != Escaped && kind != Stock:
		return Layout{}, fmt.Errorf("layout %.40q is unknown: %q or %q is right", kind, Escaped, Stock)
	case len(prefix) > MaxPrefix:
		return Layout{}, fmt.Errorf("prefix has %d bytes: at most %d are allowed", len(prefix), MaxPrefix)
	}
	if prefix != "" {
		if err := driver.CheckName(prefix); err != nil {
			return Layout{}, fmt.Errorf("prefix: %w", err)
		}
	}
	if kind == Stock {
		l := Layout{Stock: true, TombstonesAt: prefix + "//gone/", BrokenAt: prefix + "//broken/", Version: 1}
		if prefix != "" {
			l.LocksAt = prefix + "/"
		}
		return l, nil
	}
	if prefix == "" {
		prefix = DefaultPrefix
	}
	first, rest, _ := strings.Cut(prefix, "/")
	for element := range strings.SplitSeq(rest, "/") {
		if element == "lock" || element == "gone" || element == "broken" {
			return Layout{}, fmt.Errorf("prefix %q has the element %q: there the store %q keeps its keys", prefix, element, first)
		}
		first += "/" + element
	}
	return Layout{
		LocksAt: prefix + "/lock/", TombstonesAt: prefix + "/gone/", BrokenAt: prefix + "/broken/", Version: 2, Bits: 10,
	}, nil
}

var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescaper = strings.NewReplacer("%25", "%", "%2F", "/")
)

// Name returns what all keys of a name, or of names that begin so, begin with.
func (l *Layout) Name(name string) string {
	if l.Stock {
		return l.LocksAt + name
	}
	return l.LocksAt + escaper.Replace(name)
}

// Dir returns what all keys of a name begin with.
func (l *Layout) Dir(name string) string { return l.Name(name) + "/" }

// Tombstone returns the key of an owner's tombstone.
func (l *Layout) Tombstone(owner string) string { return l.TombstonesAt + escaper.Replace(owner) }

// BrokenDir returns what the markers of a client's broken holds begin with.
func (l *Layout) BrokenDir(client string) string { return l.BrokenAt + client + "/" }

// BrokenHold returns the marker of a broken hold.
func (l *Layout) BrokenHold(client string, created int64) string {
	return l.BrokenDir(client) + strconv.FormatInt(created, 10)
}

// Key returns the key of a client's n-th hold or place of a name. It is used again and again, because etcd visits
// every key that there has been since its history was compacted last when it reads a range: with a key for each
// owner, a lock that is wanted all the time would become slower and slower.
func (l *Layout) Key(name, client string, n int32) string {
	return l.Dir(name) + client + "." + strconv.FormatInt(int64(n), 10)
}
