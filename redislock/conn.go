package redislock

import "context"

// Conn is what this package needs of a Redis client library. All methods MUST be safe for concurrent
// use.
//
// Abilities that only some deployments need are interfaces of their own, which a Conn MAY implement.
type Conn interface {
	// Do sends the commands, at least one, in one go and returns as many replies. Commands with the
	// same key, or without one, MUST be carried out in order, and sent on one connection: WAIT covers
	// what its own has written. In a cluster each node gets its own in one pipeline. Do MUST NOT send
	// a command a second time that may have been carried out, and MUST return when its context ends;
	// commands that were sent may then still take effect. It MUST NOT retain the slice or the
	// arguments: the caller may change them when Do has returned.
	Do(ctx context.Context, commands []Command) []Reply

	// Subscribe calls deliver with each message on the channel, one at a time, until stop is called.
	// It returns when the server has confirmed. If the connection is lost, it MUST subscribe again,
	// however long that takes, and then call deliver with "", because messages may have been lost
	// meanwhile. deliver does not block. When stop has returned, deliver MUST NOT be called any more.
	//
	// In a cluster it is an ordinary channel: each node passes on what is published on any. See Sharded.
	Subscribe(ctx context.Context, channel string, deliver func(message string)) (stop func(), err error)

	// Close ends the connections, unless they are not the Conn's own.
	Close() error
}

// Reserver is a Conn that reserves connections for renewals and releases. Without it these are sent
// by Conn.Do: if they wait there behind other requests, a busy program may lose its leases.
type Reserver interface {
	// Reserve is called at most once. It returns a function like Conn.Do, for renewals and releases,
	// which can be used until Close.
	Reserve() func(ctx context.Context, commands []Command) []Reply
}

// Listener is a Conn to one server, or to one at a time, that can be subscribed to many channels on one
// connection. Without it waiters of the layout Redisson poll only.
type Listener interface {
	// Listen returns a connection for subscriptions. Heard is called with each message, and with ""
	// when the server has confirmed a channel, one call at a time. It does not block. When the
	// connection has been closed, heard MUST NOT be called any more.
	Listen(ctx context.Context, heard func(channel, message string)) (Listening, error)
}

// Listening is a connection for subscriptions. One goroutine uses it at a time, but Close MAY be called
// beside the others.
type Listening interface {
	// Subscribe and Unsubscribe send the channels, at least one, to the server. After an error the
	// caller closes the connection.
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	// Lost returns a channel that is closed when the connection is lost, or when the server has refused
	// a subscription.
	Lost() <-chan struct{}
	Close()
}

// ShardSubscriber is a Conn to a cluster that can be subscribed to any sharded channel. Without it waiters
// for which servers publish there poll only.
type ShardSubscriber interface {
	// SubscribeShard is like Conn.Subscribe, for a sharded channel: it is that of the server which has the
	// channel's hash slot, also when the slot has moved.
	SubscribeShard(ctx context.Context, channel string, deliver func(message string)) (stop func(), err error)
}

// ShardListener is a Conn to a cluster that can be subscribed to many sharded channels, on one connection to each
// server. Without it waiters of the layout Redisson poll only, where servers publish on such channels.
type ShardListener interface {
	// ListenShards is like Listener.Listen, for sharded channels, each of which is at the server that has its hash
	// slot. It counts as lost, too, when a slot has moved.
	ListenShards(ctx context.Context, heard func(channel, message string)) (Listening, error)
}

// Command is one command.
type Command struct {
	Args []string
	// Key says which node of a cluster gets the command: all keys of the command have its hash slot.
	// "": any node will do.
	Key string
	// Part says which node gets the command, whatever its key: see Partitioned. "": that of the key.
	Part string
}

// Reply is the reply to one command.
type Reply struct {
	Value any // string, int64, []any of these, or nil
	// Err is a *ServerError if the server refused. After any other error nobody knows whether the
	// server has carried out the command.
	Err error

	// short says why what the command has written does not count: too few replicas have acknowledged
	// it. It is nil for commands that need not be acknowledged.
	short error
}

// ServerError is an error that the server replied. The server has not carried out the command; of a
// script, it may have carried out the steps before the error.
type ServerError struct {
	Text string // begins with the error's code, such as NOAUTH; ERR is left out
}

// Error returns the server's text.
func (e *ServerError) Error() string { return e.Text }
