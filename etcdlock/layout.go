package etcdlock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// The layouts.
const (
	// Escaped, the default: a slash in a name is escaped, so that "orders" and
	// "orders/42" have nothing to do with one another.
	//
	//	PREFIX/lock/NAME/CLIENT.N      a hold or a place in the queue
	//	PREFIX/gone/OWNER              a request that was withdrawn
	//	PREFIX/broken/CLIENT/REVISION  a hold that an operator broke
	//
	// A token is the create revision of the hold's key times 1,024, plus the number of
	// times that the hold has been handed over inside its client's process. Versions of
	// this package with another format of the keys' values do not share a name: a
	// client that finds a key of another version gets an error that is ErrMismatch.
	Escaped = "escaped"
	// Stock is that of etcd's own concurrency.Mutex, of "etcdctl lock" and of the
	// v3lock service, all of which and this package keep one another out:
	//
	//	PREFIX/NAME/CLIENT.N             a hold or a place in the queue; theirs end with the lease
	//	PREFIX//gone/OWNER               as above; no name has two slashes together
	//	PREFIX//broken/CLIENT/REVISION
	//
	// A token is the create revision of the hold's key, as etcd's own programs have it:
	// one guard serves them all. So a grant has one token, and no hold is handed over
	// inside a process.
	//
	// The value of an exclusive hold without a lock-delay is its note, so that
	// package election and etcd's own concurrency.Election are one election. So
	// nobody but the client that put it knows its owner: Inspect shows the key's end
	// instead, and other clients cannot withdraw it by its owner.
	// Without a prefix the slash before the name is missing too. In this layout
	// their locks on "orders" wait for the holder of "orders/42": only they can
	// mend that.
	Stock = "stock"
)

// DefaultPrefix is what keys begin with in the layout Escaped; in Stock it is "".
const DefaultPrefix = "holdfast"

// maxPrefix is the length of the longest prefix, in bytes.
const maxPrefix = 256

// layout says which keys there are.
type layout struct {
	stock               bool
	locks               string // what keys of locks begin with
	tombstonesAt, broke string
	version             int  // of the values' format
	bits                uint // of a token, below those of the create revision
}

// token returns the first token of a hold, by its key's create revision. The token grows
// with the revision, so every later hold has a higher one (P3).
func (l *layout) token(created int64) driver.Token { return driver.Token(created << l.bits) }

// created returns the create revision of the key of the hold that has a token.
func (l *layout) created(token driver.Token) int64 { return int64(token) >> l.bits }

// block is the most tokens that a hold can have: the next revision's begin there.
func (l *layout) block() int { return 1 << l.bits }

// maxToken is the highest token (see driver.Token).
const maxToken = 1<<53 - 1

// checkRevision refuses a store whose revisions leave no room for tokens.
func (l *layout) checkRevision(rev int64) error {
	if l.bits > 0 && rev > l.created(maxToken)/2 {
		return fmt.Errorf("etcd's revision %d is too high for tokens below 2^53: use the layout %q", rev, Stock)
	}
	return nil
}

// newLayout checks the two options and makes a layout of them.
func newLayout(kind, prefix string) (layout, error) {
	switch {
	case kind != "" && kind != Escaped && kind != Stock:
		return layout{}, fmt.Errorf("layout %.40q is unknown: %q or %q is right", kind, Escaped, Stock)
	case len(prefix) > maxPrefix:
		return layout{}, fmt.Errorf("prefix has %d bytes: at most %d are allowed", len(prefix), maxPrefix)
	}
	if prefix != "" {
		if err := driver.CheckName(prefix); err != nil {
			return layout{}, fmt.Errorf("prefix: %w", err)
		}
	}
	if kind == Stock {
		l := layout{stock: true, tombstonesAt: prefix + "//gone/", broke: prefix + "//broken/", version: 1}
		if prefix != "" {
			l.locks = prefix + "/"
		}
		return l, nil
	}
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return layout{
		locks: prefix + "/lock/", tombstonesAt: prefix + "/gone/", broke: prefix + "/broken/", version: 2, bits: 10,
	}, nil
}

var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescaper = strings.NewReplacer("%25", "%", "%2F", "/")
)

// name returns what all keys of a name, or of names that begin so, begin with.
func (l *layout) name(name string) string {
	if l.stock {
		return l.locks + name
	}
	return l.locks + escaper.Replace(name)
}

func (l *layout) dir(name string) string        { return l.name(name) + "/" }
func (l *layout) tombstone(owner string) string { return l.tombstonesAt + escaper.Replace(owner) }
func (l *layout) broken(client string) string   { return l.broke + client + "/" }
func (l *layout) brokenHold(client string, created int64) string {
	return l.broken(client) + strconv.FormatInt(created, 10)
}

// key returns the key of a client's n-th hold or place of a name. It is used again
// and again, because etcd visits every key that there has been since its history
// was compacted last when it reads a range: with a key for each owner, a lock that
// is wanted all the time would become slower and slower.
func (l *layout) key(name, client string, n int32) string {
	return l.dir(name) + client + "." + strconv.FormatInt(int64(n), 10)
}

// isEntry reports whether a key below dir is a hold of dir's name or a place in its
// queue. There are others: in the layout Stock those of longer names, and in both those
// of another store whose prefix goes on where dir begins. With the prefixes "holdfast"
// and "holdfast/lock", for example, holdfast/lock/gone/ is the first one's name "gone"
// and where the second one keeps its withdrawn requests.
func (l *layout) isEntry(dir, key string) bool {
	if strings.Contains(key[len(dir):], "/") {
		return false
	}
	_, ours := clientOf(key)
	return ours || l.stock
}

// clientOf returns the client whose key it is, and whether it can be one of this
// package: etcd's own end with the number of a lease.
func clientOf(key string) (client string, ok bool) {
	client, n, ok := strings.Cut(key[strings.LastIndexByte(key, '/')+1:], ".")
	if _, err := strconv.ParseUint(n, 10, 32); !ok || err != nil || len(client) != clientLen {
		return "", false
	}
	return client, true
}

// clientLen is the length of a client's name.
const clientLen = 16

// split returns the name of a lock's key, and its end. Ours says that the value is
// of this package; in the layout Stock there may be keys of all kinds, of which
// only those of a lease can be locks.
func (l *layout) split(key string, lease int64, ours bool) (name, end string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.locks)
	i := strings.LastIndexByte(rest, '/')
	if !ok || i < 0 {
		return "", "", false
	}
	name, end = rest[:i], rest[i+1:]
	if l.stock {
		ok = ours || lease != 0 && end == strconv.FormatInt(lease, 16)
	} else {
		ok = l.isEntry(l.locks+name+"/", key) && !strings.Contains(name, "/")
		name = unescaper.Replace(name)
	}
	return name, end, ok && driver.CheckName(name) == nil
}
