// Package zksession decides, for one client, what the answers of ZooKeeper's servers say of a session:
// until when it certainly lives, and when a request that was taken back certainly has no effect. It has
// no clock, goroutine or socket, and its values are plain and comparable, so the tests explore every order
// of events.
//
// ZooKeeper's leader alone ends sessions, by its own clock: a session's timeout after it last took in a
// request of the session, or heard of one from a follower. A server answers much by itself: reads, pings,
// sync, and a client that comes back with its session. A leader that was paused while another was elected
// answers all of these from what it knew, until it notices. It may say that a session has expired which lives
// at the new leader. It cannot commit a write, because that needs a majority. So only the answer to a write
// says anything for certain.
package zksession

import (
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Kind is what a request is, as far as its answer says something of the session.
type Kind uint8

// The kinds.
const (
	// Read is whatever a server answers by itself: a read, a ping, a sync, the resumption of a session.
	Read Kind = iota
	// Write is whatever a majority commits before it is answered, refusals included: a write of a node that
	// does not exist, for instance. It is none if the answer is that the session has expired or moved.
	Write
)

// Trust is what a client knows of its session. Its zero value, with Timeout set, is that of a session of
// which nothing is known yet.
type Trust struct {
	Timeout time.Duration // as the server granted it
	// AnyServer says that the session is not kept at the leader, because the leader takes no clients. Then
	// every answer counts, pings included, though it proves nothing: a follower answers when the leader has
	// not heard of the session for longer than its timeout, and may have ended it.
	AnyServer bool
	Since     driver.Instant // the sending of the last request that counts; 0: none
	Over      bool           // a server has said that it is over, or the client has closed it
}

// Answered takes in that a request was answered, on a connection to a server that has said that it leads after
// it had taken the connection for this session; or, with AnyServer, on any. A server closes all connections of
// clients before its role changes.
//
// A leader counts a session's timeout anew when it takes in a request of one of its own clients, which is
// not before its sending.
func (t *Trust) Answered(k Kind, sent driver.Instant) {
	if t.AnyServer || k == Write {
		t.Since = max(t.Since, sent)
	}
}

// End takes in that a server has said that the session has expired. The client stops to trust it at once,
// but that does not say that nothing is left of it: see Withdrawn.
func (t *Trust) End() { t.Over = true }

// Until returns until when the session certainly lives, from Since on, if nobody ends it.
func (t *Trust) Until() driver.Instant {
	if t.Since == 0 || t.Over {
		return 0
	}
	return t.Since.Add(t.Timeout)
}

// Trusted reports whether the session certainly lives. All that is held in it is held for exactly as long,
// however late the client learns of a grant.
func (t *Trust) Trusted(now driver.Instant) bool { return now < t.Until() }

// Verdict is what is to be done for a request that is taken back.
type Verdict uint8

// The verdicts.
const (
	// Again: nothing is certain. Ask once more.
	Again Verdict = iota
	// Delete: the request has taken effect. Delete its node, in the same session; the acknowledged deletion
	// is certain.
	Delete
	// Elsewhere: a server has said that the session is over. Ask in another session: see Ended.
	Elsewhere
	// Done: the request has no effect, and never will have.
	Done
)

// Asked is what two requests have told that were sent one behind the other, in one session: a write of the
// session's own node, and a read.
type Asked struct {
	Written bool // the write was answered as a Write
	Read    bool // the read was answered
	There   bool // the read has found what is looked for
	Expired bool // a server has said that the session is over
}

// Withdrawn decides whether a request is withdrawn. The session of the request has asked for the node that
// the request was to make.
//
// An earlier request of a session has taken effect, or never will, once a later write of the session is
// answered: over one connection they arrive in order, a server that takes a session in drops its older
// connection, the leader refuses what comes by another server, and a leader that is elected has
// committed all that can still be committed of what older leaders have proposed. The read behind the write
// sees all of that. Without the write it may be answered by an old leader that does not know of the
// request.
func Withdrawn(a Asked) Verdict {
	switch {
	case a.Expired:
		return Elsewhere
	case !a.Written || !a.Read:
		return Again
	case a.There:
		return Delete
	}
	return Done
}

// Ended decides the same if a server has said that the session of the request is over. Another session has
// asked for that session's own node, which lives exactly as long: the end of a session removes all its
// ephemeral nodes at once, and after it nothing of the session takes effect.
//
// A leader that wakes up after a pause says that the session has expired, by its clock. The new leader has
// given the session all of its timeout again.
func Ended(a Asked) Verdict {
	if a.Written && a.Read && !a.There && !a.Expired {
		return Done
	}
	return Again
}
