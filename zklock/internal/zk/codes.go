package zk

import (
	"errors"
	"fmt"
	"strconv"
)

// Code is an error with which a ZooKeeper server answers one operation. A code that is not listed here keeps
// its number.
type Code int32

// The codes that decide something (org.apache.zookeeper.KeeperException.Code).
const (
	RuntimeInconsistency     Code = -2 // an operation of a Multi after the one that failed
	BadArguments             Code = -8
	NoNode                   Code = -101
	NoAuth                   Code = -102
	BadVersion               Code = -103
	NoChildrenForEphemerals  Code = -108
	NodeExists               Code = -110
	NotEmpty                 Code = -111
	SessionExpired           Code = -112
	InvalidACL               Code = -114
	AuthFailed               Code = -115
	SessionMoved             Code = -118
	SessionClosedRequireAuth Code = -124
)

// codes says of each code what it means, and whether the operation certainly has no effect.
var codes = map[Code]struct {
	text    string
	notDone bool
}{
	RuntimeInconsistency:     {"not done, because another operation of the transaction failed", true},
	-6:                       {"unimplemented by this server", true},
	BadArguments:             {"bad arguments", true},
	NoNode:                   {"no such node", true},
	NoAuth:                   {"not permitted by the node's ACL", true},
	BadVersion:               {"another version", true},
	NoChildrenForEphemerals:  {"ephemeral nodes have no children", true},
	NodeExists:               {"node exists", true},
	NotEmpty:                 {"node has children", true},
	SessionExpired:           {"session expired", false},
	InvalidACL:               {"invalid ACL", true},
	AuthFailed:               {"authentication failed", false},
	SessionMoved:             {"session moved to another server", false},
	-119:                     {"server is read-only", true},
	-120:                     {"ephemeral node on a local session", true},
	SessionClosedRequireAuth: {"the server closes sessions that do not authenticate by SASL", false},
	-125:                     {"quota exceeded", true},
	-127:                     {"the server sheds load and did not do the operation", true},
}

// Error returns what the code means, in words.
func (c Code) Error() string {
	if known, ok := codes[c]; ok {
		return "ZooKeeper: " + known.text
	}
	return "ZooKeeper: error " + strconv.Itoa(int(c))
}

// NotDone reports whether the code says that the operation certainly has no effect. Other codes may come from
// a server that failed after the operation was committed, while it wrote its answer.
func (c Code) NotDone() bool { return codes[c].notDone }

// Errors of a batch as a whole, and of a session.
var (
	// ErrNotSent says that nothing of the batch was written to a server, so nothing of it is done or will be.
	ErrNotSent = errors.New("zk: not sent")
	// ErrConnectionLoss says that the connection ended after the batch was written and before it was answered. What
	// was not answered may have been done, or not. Nothing more of it is done once a later write of the same session
	// is answered.
	ErrConnectionLoss = errors.New("zk: the connection was lost before the answer came")
	// ErrExpired says that a server has told that the session is over, or that it ends earlier from now on than was
	// granted, and that this side has given it up. It is not proof that the ephemeral nodes are gone: a leader that
	// was paused says so by its own clock, while a new leader may have given the session another timeout.
	ErrExpired = errors.New("zk: the session has expired")
	// ErrUnheard is the ErrExpired of a session that no server said anything to for its timeout. It may live at the
	// server, with its ephemeral nodes, for another timeout.
	ErrUnheard = fmt.Errorf("%w: no server was heard for its timeout", ErrExpired)
	// ErrClosed says that Close ended the session on this side.
	ErrClosed = errors.New("zk: the session is closed")
	// ErrTooLarge says that a request is larger than MaxRequest, so that it was not sent.
	ErrTooLarge = errors.New("zk: too large")
	// ErrNoLeader says that all servers answer, and that none of them says that it is the leader: the leader takes no
	// clients (leaderServes=no), is not in the list, or srvr is not permitted (4lw.commands.whitelist). Open with
	// AnyServer works there.
	ErrNoLeader = errors.New("zk: no server says that it is the leader")
	// ErrNoQuorum says that servers answer and none of them serves: a majority is not there, or they elect a leader.
	ErrNoQuorum = errors.New("zk: servers answer and none serves, for want of a majority or of a leader yet")
	// ErrHungUp says that a server ended the connection in place of an answer: it has too many of this host
	// (maxClientCnxns), does not serve yet, or is behind what the session has seen.
	ErrHungUp = errors.New("the server ended the connection in place of an answer")
)
