// Package zksession decides, for one client, what the answers of ZooKeeper's servers say of a session: until when it
// certainly lives, and when a request that was taken back certainly has no effect. It has no clock, goroutine or
// socket, and its values are plain and comparable, so the tests explore every order of events.
//
// ZooKeeper's leader alone ends sessions, by its own clock: a session's timeout after it last took in a request of
// the session, or heard of one from a follower. A server answers much by itself: reads, pings, sync, and a client
// that comes back with its session. A leader that was paused while another was elected answers all of these from what
// it knew, until it notices. It may say that a session has expired which lives at the new leader. It cannot commit a
// write, because that needs a majority. So only the answer to a write says anything for certain.
package zksession

import "github.com/holdfastlock/holdfast/driver"

// Trust is what a client knows of its session. The zero value is that of a session of which nothing is known yet.
// What is held in a session is held from Since on for the session's timeout, unless it is over (P2).
type Trust struct {
	// AnyServer says that the session is not kept at the leader, because the leader takes no clients. Then
	// every answer counts, pings included, though it proves nothing: a follower answers when the leader has
	// not heard of the session for longer than its timeout, and may have ended it.
	AnyServer bool
	Since     driver.Instant // the sending of the last request that counts; 0: none
	Over      bool           // a server has said that it is over, or the client has closed it
}

// Answered takes in that a request was answered, on a connection to a server that has said that it leads after
// it had taken the connection for this session; or, with AnyServer, on any. A server closes all connections of
// clients before its role changes. A write is whatever a majority commits before it is answered, refusals included.
// A request is no write if the answer is that the session has expired or moved.
//
// A leader counts a session's timeout anew when it takes in a request of one of its own clients, which is
// not before its sending.
func (t *Trust) Answered(write bool, sent driver.Instant) {
	if t.AnyServer || write {
		t.Since = max(t.Since, sent)
	}
}

// End takes in that a server has said that the session has expired. The client stops to trust it at once,
// but that does not say that nothing is left of it: see Withdrawn.
func (t *Trust) End() { t.Over = true }

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
// An earlier request of a session has taken effect, or never will, once a later write of the session is answered:
// over one connection they arrive in order, a server that takes a session in drops its older connection, the leader
// refuses what comes by another server, and a leader that is elected has committed all that can still be committed of
// what older leaders have proposed. The read behind the write sees all of that. Without the write it may be answered
// by an old leader that does not know of the request.
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
