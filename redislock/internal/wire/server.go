package wire

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/holdfastlock/holdfast/redislock/internal/subscription"
)

// Options say how to connect to a server.
type Options struct {
	Dial func(context.Context) (net.Conn, error)
	// Hello are the first commands on each connection. Greeted returns why their replies do not suffice. nil: none of
	// them may fail.
	Hello   []Command
	Greeted func(replies []Reply) error
	// Dialed are the connections that Dial makes. They are closed with the server.
	Dialed *Dialed
	// Replied is called with the replies to requests. nil: nothing is done.
	Replied func([]Reply)
}

// Server is a client of one server, or of one at a time. It connects in the background. Safe for concurrent
// use.
type Server struct {
	o        Options
	shared   *line
	reserved atomic.Pointer[line] // for renewals and releases; nil: there is none
}

// How long the server may owe replies and send nothing when a caller gives up: then the connection is made
// anew. Without callers that give up it is ten seconds.
const (
	sharedPatience   = 5 * time.Second
	reservedPatience = time.Second
)

// Open returns a client.
func Open(o Options) *Server {
	s := &Server{o: o}
	s.shared = openLine(&s.o, sharedPatience)
	return s
}

// Do is redislock.Conn's. If there is no connection, it waits for the next attempt to make it.
func (s *Server) Do(ctx context.Context, commands []Command) []Reply {
	return s.replied(s.shared.do(ctx, commands))
}

// Reserve makes a second connection, and returns a function like Do that sends renewals and releases by it, so
// that none waits behind other requests (P2). While there is none, they go by the other connection. It is called
// once at most.
func (s *Server) Reserve() func(context.Context, []Command) []Reply {
	reserved := openLine(&s.o, reservedPatience)
	s.reserved.Store(reserved)
	return func(ctx context.Context, commands []Command) []Reply {
		if replies, sent := reserved.try(ctx, commands); sent {
			return s.replied(replies)
		}
		return s.Do(ctx, commands)
	}
}

// Outlived makes the connections anew, because the server has another life than it had when they were made.
func (s *Server) Outlived() { s.o.Dialed.Drop("") }

func (s *Server) replied(replies []Reply) []Reply {
	if s.o.Replied != nil {
		s.o.Replied(replies)
	}
	return replies
}

// Subscribe is redislock.Conn's.
func (s *Server) Subscribe(ctx context.Context, channel string, deliver func(string)) (func(), error) {
	return subscription.Maintain(ctx, func(ctx context.Context) (subscription.Session, error) {
		return s.Session(ctx, channel, deliver)
	}, deliver)
}

// Close ends the connections, also those of subscriptions.
func (s *Server) Close() error {
	s.shared.close()
	if reserved := s.reserved.Load(); reserved != nil {
		reserved.close()
	}
	s.o.Dialed.Close()
	return nil
}
