package zk

import (
	"encoding/binary"

	"github.com/holdfastlock/holdfast/driver"
)

// opcode is the type of a request.
type opcode int32

const (
	opCreate          opcode = 1
	opDelete          opcode = 2
	opExists          opcode = 3
	opGetData         opcode = 4
	opSetData         opcode = 5
	opPing            opcode = 11
	opChildren        opcode = 12 // getChildren2, whose answer has the Stat
	opCheck           opcode = 13
	opMulti           opcode = 14
	opRemoveWatches   opcode = 18
	opCreate2         opcode = 15 // only in answers to a Multi
	opCreateContainer opcode = 19
	opAuth            opcode = 100
	opSetWatches      opcode = 101
	opClose           opcode = -11

	opError opcode = -1 // in answers to a Multi
)

// Ids of requests and answers that are not numbered.
const (
	xidEvent      int32 = -1
	xidPing       int32 = -2
	xidAuth       int32 = -4
	xidSetWatches int32 = -8
)

// MaxRequest is how many bytes a request has at most: jute.maxbuffer, as servers have it by default.
const MaxRequest = 1<<20 - 1

// maxFrame is how many bytes an answer has at most; beyond is garbage.
const maxFrame = 64 << 20

// Flags say what kind of node Create makes. The zero value is a persistent one.
type Flags int32

// The flags, to be combined.
const (
	Ephemeral  Flags = 1 // the server removes it with the session
	Sequential Flags = 2 // the server appends the parent's counter, ten digits
)

// AnyVersion as a version is that of every node.
const AnyVersion int32 = -1

// ACL says who may do everything with a node; nobody else may do anything.
type ACL struct{ scheme, id string }

// CreatorACL permits everything to the identities that the session has authenticated as. A server answers
// InvalidACL if there are none.
func CreatorACL() *ACL { return &ACL{"auth", ""} }

const permAll = 31 // read, write, create, delete, admin

// Stat is what a server says of a node beside its data.
type Stat struct {
	Czxid, Mzxid   int64 // the transactions that created it, and that last changed its data
	Ctime, Mtime   int64 // when that was: milliseconds since 1970, by the leader's wall clock
	Version        int32 // of the data
	EphemeralOwner int64 // the session's id; 0: not ephemeral
}

// Reply is the answer to one operation.
type Reply struct {
	// Zxid is the transaction that a write was, or the last one that the server had applied when
	// it answered a read. For a Create it is the node's czxid.
	Zxid int64
	// Err is a [Code] if the server refused the operation, or the error of the batch as a whole if it was not
	// answered. nil: done.
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
}

// Op is one operation. It may be sent more than once.
type Op struct {
	code   opcode
	path   string
	data   []byte
	acl    *ACL
	number int32 // flags, version, or type of watch
	watch  *Watch
	ops    []Op // of a Multi
}

// Create makes a node. A nil acl permits everything to everybody.
func Create(path string, data []byte, acl *ACL, flags Flags) Op {
	return Op{code: opCreate, path: path, data: data, acl: acl, number: int32(flags)}
}

// CreateContainer makes a node that the server removes some time after its last child is gone.
func CreateContainer(path string, data []byte, acl *ACL) Op {
	return Op{code: opCreateContainer, path: path, data: data, acl: acl, number: 4}
}

// Delete removes a node of that version.
func Delete(path string, version int32) Op { return Op{code: opDelete, path: path, number: version} }

// Exists asks for a node's Stat. w, if not nil, is armed also with [NoNode], and fires when the node is made, removed,
// or its data set.
func Exists(path string, w *Watch) Op { return Op{code: opExists, path: path, watch: w} }

// GetData asks for a node's data and Stat. w, if not nil, is armed if the node exists, and fires when
// it is removed or its data set.
func GetData(path string, w *Watch) Op { return Op{code: opGetData, path: path, watch: w} }

// SetData replaces the data of a node of that version.
func SetData(path string, data []byte, version int32) Op {
	return Op{code: opSetData, path: path, data: data, number: version}
}

// Children asks for the names of a node's children, and its Stat. w, if not nil, is armed if the node
// exists, and fires when a child is made or removed, or the node removed.
func Children(path string, w *Watch) Op { return Op{code: opChildren, path: path, watch: w} }

// Check is for Multi, which it fails unless the node exists and has that version.
func Check(path string, version int32) Op { return Op{code: opCheck, path: path, number: version} }

// Multi does all operations (Create, CreateContainer, Delete, SetData, Check) or none. If one fails, Reply.Err is
// its code, Results has it at its place; the operations after it have [RuntimeInconsistency], and those before it
// are not done either.
func Multi(ops ...Op) Op { return Op{code: opMulti, ops: ops} }

// writes reports whether the operation goes through the quorum.
func (op *Op) writes() bool {
	switch op.code {
	case opCreate, opCreateContainer, opDelete, opSetData, opMulti:
		return true
	}
	return false
}

// committed reports whether a write with that answer went through the quorum. A leader turns a refusal
// like these into a transaction of its own. Of any other one this is not known.
func committed(err error) bool {
	switch err {
	case nil, NoNode, NoAuth, BadVersion, NoChildrenForEphemerals, NodeExists, NotEmpty, InvalidACL:
		return true
	}
	return false
}

// encode appends what follows the header.
func (op *Op) encode(e *encoder) {
	switch op.code {
	case opCreate, opCreateContainer:
		e.string(op.path)
		e.bytes(op.data)
		acl := op.acl
		if acl == nil {
			acl = &ACL{"world", "anyone"}
		}
		e.int32(1) // one entry
		e.int32(permAll)
		e.string(acl.scheme)
		e.string(acl.id)
		e.int32(op.number)
	case opDelete, opCheck, opRemoveWatches:
		e.string(op.path)
		e.int32(op.number)
	case opExists, opGetData, opChildren:
		e.string(op.path)
		e.bool(op.watch != nil)
	case opSetData:
		e.string(op.path)
		e.bytes(op.data)
		e.int32(op.number)
	case opMulti:
		for i := range op.ops {
			e.int32(int32(op.ops[i].code))
			e.bool(false)
			e.int32(-1)
			op.ops[i].encode(e)
		}
		e.int32(-1)
		e.bool(true)
		e.int32(-1)
	}
}

// request appends a frame: its length, id and type, and what body appends.
func (e *encoder) request(xid int32, code opcode, body func()) error {
	start := len(e.b)
	e.int32(0)
	e.int32(xid)
	e.int32(int32(code))
	body()
	return e.endFrame(start)
}

// endFrame writes the length of the frame that starts there.
func (e *encoder) endFrame(start int) error {
	n := len(e.b) - start - 4
	if n > MaxRequest {
		return ErrTooLarge
	}
	binary.BigEndian.PutUint32(e.b[start:], uint32(n))
	return nil
}

// decode reads what follows the header of an answer that is not an error.
func (op *Op) decode(d *decoder, r *Reply) {
	switch op.code {
	case opCreate:
		r.Path = d.string()
	case opCreateContainer:
		r.Path = d.string()
		r.Stat = d.stat()
	case opExists, opSetData:
		r.Stat = d.stat()
	case opGetData:
		r.Data = d.bytes()
		r.Stat = d.stat()
	case opChildren:
		r.Children = d.strings()
		r.Stat = d.stat()
	case opMulti:
		op.decodeMulti(d, r)
	}
}

// decodeMulti reads one result for each operation, and the end.
func (op *Op) decodeMulti(d *decoder, r *Reply) {
	r.Results = make([]Reply, len(op.ops))
	for i := range op.ops {
		result := &r.Results[i]
		code, last, _ := opcode(d.int32()), d.bool(), d.int32()
		switch {
		case d.err != nil || last:
			d.err = errGarbage
			return
		case code == opError:
			if result.Err = Code(d.int32()); result.Err == Code(0) {
				result.Err = RuntimeInconsistency // it could have been done, before the one that failed
			}
		case code == op.ops[i].code, code == opCreate2 && op.ops[i].code == opCreateContainer:
			result.Zxid = r.Zxid
			op.ops[i].decode(d, result)
		default:
			d.err = errGarbage
			return
		}
	}
	if code, last, _ := opcode(d.int32()), d.bool(), d.int32(); code != -1 || !last {
		d.err = errGarbage
		return
	}
	for i := range r.Results {
		if e := r.Results[i].Err; e != nil && (r.Err == nil || r.Err == RuntimeInconsistency) {
			r.Err = e
		}
	}
}
