package redislock

import (
	"context"

	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Conn is what a driver needs of a client of Redis. [Dial] makes one; packages beside this one make it of a
// client that a program has. All methods MUST be safe for concurrent use.
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
	// In a cluster it is an ordinary channel: each node passes on what is published on any.
	Subscribe(ctx context.Context, channel string, deliver func(message string)) (stop func(), err error)

	// Close ends the connections, unless they are not the Conn's own.
	Close() error
}

// Clustered is a Conn to a cluster, as Dial makes it: to servers each of which has a part of the keys.
type Clustered interface {
	Conn
	// Parts returns the servers that have keys at the moment.
	Parts() []string
	// Part returns the server that has the key at the moment, or "" if none is known.
	Part(key string) string
}

// Command is one command: its name and arguments are Args. Key says which node of a cluster gets it: all keys of
// the command have its hash slot; "": any node will do. Part names the node, whatever the key: see Clustered;
// "": that of the key. Life asks for one more argument, the server's life; only the Conn of [Dial] knows it.
type Command = wire.Command

// Reply is the reply to one command. Value is a string, an int64, a []any of these, or nil. Err is a *ServerError
// if the server refused. After any other error nobody knows whether the server has carried out the command.
type Reply = wire.Reply

// ServerError is an error that the server replied. The server has not carried out the command; of a
// script, it may have carried out the steps before the error. Text begins with the error's code, such as
// NOAUTH, which Code returns; ERR is left out.
type ServerError = wire.ServerError

// ErrFailover says that servers of a deployment answer, but the one that is needed does not, or takes no
// writes. Another may take over from it within seconds.
var ErrFailover = wire.ErrFailover

// reserver is a Conn that sends renewals and releases by a connection of their own (P2). Over a Conn that is none
// they may wait behind other requests.
type reserver interface {
	// Reserve is called at most once. It returns a function like Conn.Do, which can be used until Close.
	Reserve() func(ctx context.Context, commands []Command) []Reply
}
