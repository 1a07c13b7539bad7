package cluster

import (
	"context"
	"sync"

	"github.com/holdfastlock/holdfast/redislock/internal/slot"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// Listening are connections for sharded channels, one to each server that has some. When one is lost, or a slot
// has moved, all count as lost: the caller begins again, by the table that the cluster has then.
type Listening struct {
	c     *Conn
	heard func(channel, message string)
	lost  chan struct{}
	once  sync.Once

	mu     sync.Mutex
	at     map[string]*wire.Listening // by address
	of     map[string]string          // the addresses of channels
	closed bool
	work   sync.WaitGroup
}

// ListenShards is like wire.Server.Listen, for sharded channels, each of which is at the server that has its hash
// slot.
func (c *Conn) ListenShards(heard func(channel, message string)) *Listening {
	var one sync.Mutex // the servers call at the same time
	return &Listening{
		c: c, lost: make(chan struct{}), at: map[string]*wire.Listening{}, of: map[string]string{},
		heard: func(channel, message string) {
			one.Lock()
			defer one.Unlock()
			heard(channel, message)
		},
	}
}

// Subscribe sends the channels to their servers.
func (l *Listening) Subscribe(ctx context.Context, channels ...string) error {
	for _, some := range bySlot(channels) {
		address := l.c.Part(some[0])
		if address == "" {
			l.c.refresh()
			return errUncovered
		}
		server, err := l.server(ctx, address)
		if err == nil {
			err = server.Subscribe(ctx, some...)
		}
		if err != nil {
			if to, moved := redirected(address, &wire.Reply{Err: err}); moved && !to.ask {
				l.c.moved(to)
			}
			l.c.refresh()
			return err
		}
		l.mu.Lock()
		for _, channel := range some {
			l.of[channel] = address
		}
		l.mu.Unlock()
	}
	return nil
}

// server returns the connection to a server, which it makes if there is none.
func (l *Listening) server(ctx context.Context, address string) (*wire.Listening, error) {
	l.mu.Lock()
	server := l.at[address]
	l.mu.Unlock()
	if server != nil {
		return server, nil
	}
	n, err := l.c.node(address)
	if err == nil {
		server, err = n.server.Listen(ctx, true, l.heard)
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		server.Close()
		return nil, context.Canceled
	}
	l.at[address] = server
	closing := l.c.alive
	l.work.Go(func() {
		select {
		case <-server.Lost():
		case <-closing.Done():
		case <-l.lost:
			return
		}
		l.c.refresh()
		l.lose()
	})
	return server, nil
}

func (l *Listening) lose() { l.once.Do(func() { close(l.lost) }) }

// bySlot returns lists of channels, those of each slot in one.
func bySlot(channels []string) (lists map[int][]string) {
	lists = map[int][]string{}
	for _, channel := range channels {
		lists[slot.Of(channel)] = append(lists[slot.Of(channel)], channel)
	}
	return lists
}

// Unsubscribe is the contrary.
func (l *Listening) Unsubscribe(ctx context.Context, channels ...string) error {
	for _, some := range bySlot(channels) {
		l.mu.Lock()
		server := l.at[l.of[some[0]]]
		for _, channel := range some {
			delete(l.of, channel)
		}
		l.mu.Unlock()
		if server == nil {
			continue
		}
		if err := server.Unsubscribe(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

// Lost returns a channel that is closed when a connection is lost, or a slot has moved.
func (l *Listening) Lost() <-chan struct{} { return l.lost }

// Close ends the connections.
func (l *Listening) Close() {
	l.mu.Lock()
	l.closed = true
	servers := l.at
	l.at = nil
	l.mu.Unlock()
	l.lose()
	for _, server := range servers {
		server.Close()
	}
	l.work.Wait()
}
