package zk

import (
	"errors"
	"fmt"
	"strconv"
)

// Code is an error with which a ZooKeeper server answers one operation. What is not listed here
// keeps its number.
type Code int32

// The codes that a client of this package can meet (org.apache.zookeeper.KeeperException.Code).
const (
	SystemError              Code = -1
	RuntimeInconsistency     Code = -2 // an operation of a Multi after the one that failed
	DataInconsistency        Code = -3
	ServerConnectionLoss     Code = -4
	MarshallingError         Code = -5
	Unimplemented            Code = -6
	OperationTimeout         Code = -7
	BadArguments             Code = -8
	InvalidState             Code = -9
	APIError                 Code = -100
	NoNode                   Code = -101
	NoAuth                   Code = -102
	BadVersion               Code = -103
	NoChildrenForEphemerals  Code = -108
	NodeExists               Code = -110
	NotEmpty                 Code = -111
	SessionExpired           Code = -112
	InvalidCallback          Code = -113
	InvalidACL               Code = -114
	AuthFailed               Code = -115
	SessionMoved             Code = -118
	NotReadOnly              Code = -119
	EphemeralOnLocalSession  Code = -120
	NoWatcher                Code = -121
	RequestTimeout           Code = -122
	ReconfigDisabled         Code = -123
	SessionClosedRequireAuth Code = -124
	QuotaExceeded            Code = -125
	ThrottledOp              Code = -127 // the server has too much to do; the operation was not done
)

var codeNames = map[Code]string{
	SystemError:              "system error",
	RuntimeInconsistency:     "not done, because another operation of the transaction failed",
	DataInconsistency:        "data inconsistency",
	ServerConnectionLoss:     "connection loss",
	MarshallingError:         "marshalling error",
	Unimplemented:            "unimplemented by this server",
	OperationTimeout:         "operation timeout",
	BadArguments:             "bad arguments",
	InvalidState:             "invalid state",
	APIError:                 "API error",
	NoNode:                   "no such node",
	NoAuth:                   "not permitted by the node's ACL",
	BadVersion:               "another version",
	NoChildrenForEphemerals:  "ephemeral nodes have no children",
	NodeExists:               "node exists",
	NotEmpty:                 "node has children",
	SessionExpired:           "session expired",
	InvalidCallback:          "invalid callback",
	InvalidACL:               "invalid ACL",
	AuthFailed:               "authentication failed",
	SessionMoved:             "session moved to another server",
	NotReadOnly:              "server is read-only",
	EphemeralOnLocalSession:  "ephemeral node on a local session",
	NoWatcher:                "no such watch",
	RequestTimeout:           "request timeout",
	ReconfigDisabled:         "reconfiguration is disabled",
	SessionClosedRequireAuth: "the server closes sessions that do not authenticate by SASL",
	QuotaExceeded:            "quota exceeded",
	ThrottledOp:              "the server sheds load and did not do the operation",
}

// Error returns what the code means, in words.
func (c Code) Error() string {
	if name, ok := codeNames[c]; ok {
		return "ZooKeeper: " + name
	}
	return "ZooKeeper: error " + strconv.Itoa(int(c))
}

// NotDone reports whether the code says that the operation certainly has no effect. Others may also come from
// a server that failed after the operation was committed, as when it wrote its answer.
func (c Code) NotDone() bool {
	switch c {
	case NoNode, NoAuth, BadVersion, NoChildrenForEphemerals, NodeExists, NotEmpty, InvalidACL, BadArguments,
		RuntimeInconsistency, Unimplemented, NotReadOnly, EphemeralOnLocalSession, QuotaExceeded, ThrottledOp:
		return true
	}
	return false
}

// Errors of a batch as a whole.
var (
	// ErrNotSent says that nothing of the batch was written to a server, so nothing of it is done
	// or will be.
	ErrNotSent = errors.New("zk: not sent")

	// ErrConnectionLoss says that the connection ended after the batch was written and before it
	// was answered. What was not answered may have been done, or not. Nothing more of it is done
	// once a later write of the same session is answered.
	ErrConnectionLoss = errors.New("zk: the connection was lost before the answer came")

	// ErrExpired says that a server has told that the session is over, or that it ends earlier from now
	// on than was granted, and that this side has given it up. It is not proof that the ephemeral nodes
	// are gone: a leader that was paused says so by its own clock, while a new leader may have given the
	// session another timeout.
	ErrExpired = errors.New("zk: the session has expired")

	// ErrUnheard is the ErrExpired of a session that no server said anything to for its timeout. It may
	// live at the server, with its ephemeral nodes, for another timeout.
	ErrUnheard = fmt.Errorf("%w: no server was heard for its timeout", ErrExpired)

	// ErrClosed says that Close ended the session on this side.
	ErrClosed = errors.New("zk: the session is closed")

	// ErrTooLarge says that a request is larger than servers take by default (jute.maxbuffer, 1 MiB
	// less one byte), so that it was not sent, or that the answer to one operation is larger than
	// this package reads (4 MiB).
	ErrTooLarge = errors.New("zk: too large")

	// ErrNoLeader says that all servers answer, and that none of them says that it is the leader: the
	// leader takes no clients (leaderServes=no), is not in the list, or srvr is not permitted
	// (4lw.commands.whitelist). Open with AnyServer works there.
	ErrNoLeader = errors.New("zk: no server says that it is the leader")

	// ErrNoQuorum says that servers answer and none of them serves: a majority is not there, or they
	// elect a leader.
	ErrNoQuorum = errors.New("zk: servers answer and none serves, for want of a majority or of a leader yet")
)
