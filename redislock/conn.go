package redislock

import "context"

// Conn is what this package needs of a Redis client library. All methods are
// safe for concurrent use.
//
// What only some deployments need is not in here, but in interfaces that a Conn
// may implement beside it, so that Conn stays as small as it is.
type Conn interface {
	// Do sends the commands, at least one, in one go and returns as many replies. Those with
	// the same key, or without one, are carried out in order; in a cluster each
	// node gets its own in one pipeline. Do must not send a command a second time.
	// It ends with its context; what was sent then may still take effect. It keeps
	// neither the slice nor the arguments, which may be changed when it has
	// returned.
	Do(ctx context.Context, commands []Command) []Reply

	// Subscribe calls hear with each message on the channel, one at a time,
	// until stop is called; it returns when the server has confirmed. When the
	// connection is lost it subscribes again, for as long as it takes, and then
	// calls hear with "", because messages may have been lost meanwhile. hear does not
	// block. After stop has returned it is not called any more.
	//
	// A channel is routed like a key: in a cluster, one whose name has a hash tag
	// is a sharded channel of the node that has the tag's slot.
	Subscribe(ctx context.Context, channel string, hear func(message string)) (stop func(), err error)

	// Close ends the connections, unless they are not the Conn's own.
	Close() error
}

// Reserver is a Conn that has a way of their own for renewals and releases, which
// nothing else that the program asks of the server can fill. Without it they are sent
// by Conn.Do: where that shares connections with other requests, a busy program may
// lose its leases.
type Reserver interface {
	// Reserve is called once at most, and returns a function like Conn.Do, which can be
	// used until Close.
	Reserve() func(ctx context.Context, commands []Command) []Reply
}

// Command is one command.
type Command struct {
	Args []string
	// Key is the key by which a cluster knows where the command belongs: all
	// keys of the command have its hash slot. "": any node will do.
	Key string
}

// Reply is the reply to one command.
type Reply struct {
	Value any // string, int64, []any of these, or nil
	// Err is a *ServerError if the server refused; any other error leaves it
	// open whether the server has carried the command out.
	Err error
}

// ServerError is an error that the server answered. It has not carried the
// command out; of a script, it may have carried out what came before the error.
type ServerError struct {
	Text string // begins with the error's code, such as NOAUTH, unless that is ERR, which is left out
}

// Error returns the server's text.
func (e *ServerError) Error() string { return e.Text }
