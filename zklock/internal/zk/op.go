package zk

import "github.com/holdfastlock/holdfast/driver"

// Flags say what kind of node Create makes. The zero value is a persistent one.
type Flags int32

// The flags, to be combined.
const (
	Ephemeral  Flags = 1 // the server removes it with the session
	Sequential Flags = 2 // the server appends the parent's counter, ten digits
)

// AnyVersion as a version is that of every node.
const AnyVersion int32 = -1

// Perms are what an entry of an ACL permits.
type Perms int32

// The permissions, to be combined.
const (
	PermRead Perms = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
	PermAll = PermRead | PermWrite | PermCreate | PermDelete | PermAdmin
)

// ACL is one entry of a node's access control list.
type ACL struct {
	Perms  Perms
	Scheme string // world, auth, digest, ip, x509, …
	ID     string
}

// OpenACL permits everything to everybody.
func OpenACL() []ACL { return []ACL{{PermAll, "world", "anyone"}} }

// CreatorACL permits everything to the identities that the session has authenticated as, and
// nothing to others. A server answers InvalidACL if there are none.
func CreatorACL() []ACL { return []ACL{{PermAll, "auth", ""}} }

// Stat is what a server says of a node beside its data.
type Stat struct {
	Czxid          int64 // the transaction that created it
	Mzxid          int64 // that last changed its data
	Ctime, Mtime   int64 // milliseconds since 1970, by the leader's wall clock
	Version        int32 // of the data
	Cversion       int32 // of the list of children
	Aversion       int32 // of the ACL
	EphemeralOwner int64 // the session's id; 0: not ephemeral
	DataLength     int32
	NumChildren    int32
	Pzxid          int64 // the transaction that last changed the list of children
}

// Reply is the answer to one operation.
type Reply struct {
	// Zxid is the transaction that a write was, or the last one that the server had applied when
	// it answered a read. For a Create it is the node's czxid.
	Zxid int64

	// Err is a [Code] if the server refused the operation; [ErrTooLarge]; or the error of the
	// batch as a whole if it was not answered. nil: done.
	Err error

	// Committed says that a majority of the ensemble has committed the operation, or its refusal: it
	// is a write, and its answer is one that only comes that way. So the server led when it got the
	// operation. Reads and Check never have it.
	Committed bool

	Path     string   // Create, CreateContainer: the node's path, with its digits
	Data     []byte   // GetData
	Children []string // Children: names, in no order
	Stat     Stat     // CreateContainer, Exists, GetData, SetData, Children
	Results  []Reply  // Multi: one for each operation

	// Sent is an instant not after the operation was written. The server got it later.
	Sent driver.Instant

	// Connection is the number, from 1, of the session's connection by which the answer came.
	Connection int
}
