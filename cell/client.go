package cell

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfastlock/holdfast/cell/cellv1"
	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
)

// Config says how to reach a cell.
type Config struct {
	// Members are where the members listen for clients, as host:port. One is enough to begin with;
	// only those that are named are used.
	Members []string
	// TLS returns the settings for a new connection to members that have certificates; nil: they have
	// none. Its certificate says who the client is, if it has one.
	TLS func() *tls.Config
	// Token says who the client is, if it is not "".
	Token string
	// TokenFile is a file with the token, instead of Token. It is read again when a token is needed, so
	// that it can be replaced.
	TokenFile string
	// Clock is the clock that sessions are trusted by. nil: driver.HostClock.
	Clock driver.Clock
}

// Client reaches a cell at one of its members, and at another one if that does not answer. Safe for
// concurrent use.
type Client struct {
	members     []*Member
	current     atomic.Int32 // index of the member that is used
	transport   *http.Transport
	connections *connections
	clock       driver.Clock
}

// Member is the API of one member.
type Member struct {
	Address  string
	Sessions cellv1connect.SessionsClient
	Locks    cellv1connect.LocksClient
	Files    cellv1connect.FilesClient
	Cell     cellv1connect.CellClient
}

// MaxMembers is how many members a client can be told of.
const MaxMembers = 64

// New returns a client. It makes no contact.
func New(c Config) (*Client, error) {
	if len(c.Members) == 0 || len(c.Members) > MaxMembers {
		return nil, fmt.Errorf("%d members: between 1 and %d are right", len(c.Members), MaxMembers)
	}
	protocols := new(http.Protocols)
	scheme := "http"
	if c.TLS != nil {
		scheme = "https"
		protocols.SetHTTP2(true)
	} else {
		protocols.SetUnencryptedHTTP2(true)
	}
	conns := newConnections(c.TLS)
	client := &Client{clock: cmp.Or(c.Clock, driver.HostClock), connections: conns, transport: &http.Transport{
		Protocols: protocols, DialContext: conns.dial,
		// A connection on which nothing comes is tried, and given up if that fails: parked calls are
		// silent for long.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin},
	}}
	if c.TLS != nil {
		client.transport.DialTLSContext = conns.dialTLS
	}
	h := &http.Client{Transport: client.transport}
	switch token, err := newBearer(&c); {
	case err != nil:
		return nil, err
	case token != nil:
		token.next, h.Transport = client.transport, token
	}
	option := connect.WithReadMaxBytes(maxResponse)
	for _, address := range c.Members {
		url := scheme + "://" + address
		client.members = append(client.members, &Member{
			Address:  address,
			Sessions: cellv1connect.NewSessionsClient(h, url, option),
			Locks:    cellv1connect.NewLocksClient(h, url, option),
			Files:    cellv1connect.NewFilesClient(h, url, option),
			Cell:     cellv1connect.NewCellClient(h, url, option),
		})
	}
	return client, nil
}

// Bounds of connections.
const (
	dialWithin    = 2 * time.Second
	attemptWithin = 2 * time.Second
	pingAfter     = 10 * time.Second
	pingWithin    = 2 * time.Second
	maxResponse   = 64 << 20
)

// Close closes the connections. Calls that are under way fail.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.connections.close()
}

// Members returns the members, for calls that are for a certain one.
func (c *Client) Members() []*Member { return slices.Clone(c.members) }

// Clock is the clock that sessions are trusted by.
func (c *Client) Clock() driver.Clock { return c.clock }

// Do makes a call at the member that is used at present. If that has certainly not taken the call in,
// another one is asked; if repeat is set, also if nobody knows that, or if it has not answered within two seconds: it
// may stand still. The last one may take as long as the context. An error that is an answer of the cell has a
// reason (see ReasonOf).
func (c *Client) Do(ctx context.Context, repeat bool, call func(context.Context, *Member) error) error {
	return c.do(ctx, repeat, repeat, call)
}

// Ask is Do for a call with an answer.
func Ask[T any](ctx context.Context, c *Client, repeat bool, call func(context.Context, *Member) (T, error)) (answer T, err error) {
	err = c.Do(ctx, repeat, func(ctx context.Context, m *Member) (err error) {
		answer, err = call(ctx, m)
		return err
	})
	return answer, err
}

// DoParked is Do, repeated, for a call that a member may answer late.
func (c *Client) DoParked(ctx context.Context, call func(context.Context, *Member) error) error {
	return c.do(ctx, true, false, call)
}

func (c *Client) do(ctx context.Context, repeat, bounded bool, call func(context.Context, *Member) error) error {
	var refused error // by a member; says more than that another one does not answer
	var lost error    // of a call that a member may have taken in: nothing that another one says makes that certain
	for tries := 1; ; tries++ {
		at := c.current.Load()
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if bounded && tries < len(c.members) {
			attempt, cancel = context.WithTimeout(ctx, attemptWithin)
		}
		err := call(attempt, c.members[at])
		cancel()
		switch reason := ReasonOf(err); {
		case err == nil:
			return nil
		case ctxerr.Ended(ctx) != nil:
			return ctxerr.Of(ctx, cmp.Or(lost, err))
		case reason == cellv1.Reason_REASON_REFUSED:
			refused = err
		case NotSent(err):
		case reason == cellv1.Reason_REASON_UNSPECIFIED && repeat:
			lost = cmp.Or(lost, err)
		default:
			if reason == cellv1.Reason_REASON_UNSPECIFIED {
				c.leave(at)
			}
			return err
		}
		c.leave(at)
		if tries >= len(c.members) {
			return cmp.Or(lost, refused, err)
		}
	}
}

// leave makes the next member the one that is used, unless somebody else has.
func (c *Client) leave(at int32) {
	c.current.CompareAndSwap(at, (at+1)%int32(len(c.members)))
}

// ReasonOf returns the reason of an error that the cell has answered with. It is unspecified of all
// others, and of nil.
func ReasonOf(err error) cellv1.Reason { return ProblemOf(err).GetReason() }

// ProblemOf returns the detail of an error that the cell has answered with, or nil.
func ProblemOf(err error) *cellv1.Problem {
	var e *connect.Error
	if err == nil || !errors.As(err, &e) {
		return nil
	}
	for _, d := range e.Details() {
		if v, err := d.Value(); err == nil {
			if p, ok := v.(*cellv1.Problem); ok {
				return p
			}
		}
	}
	return nil
}

// NotSent reports whether a call has failed before any of it was sent.
func NotSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// Certain reports whether an error says that the cell has certainly not done what was asked, and will
// not do it.
func Certain(err error) bool {
	switch ReasonOf(err) {
	case cellv1.Reason_REASON_UNSPECIFIED:
		return NotSent(err)
	case cellv1.Reason_REASON_UNCERTAIN:
		return false
	}
	return true
}

// MemberStatus is what a member says of itself and of the cell.
type MemberStatus struct {
	Address string                 // as in Config.Members
	Status  *cellv1.StatusResponse // nil: it does not answer
	Err     error                  // why
}

// Statuses asks all members that the configuration names, at the same time, in its order. It returns when
// all have answered, or the context ends. Safe for concurrent use.
func (c *Client) Statuses(ctx context.Context) []MemberStatus {
	said := make([]MemberStatus, len(c.members))
	var all sync.WaitGroup
	for i, m := range c.members {
		all.Go(func() {
			r, err := m.Cell.Status(ctx, &cellv1.StatusRequest{})
			said[i] = MemberStatus{m.Address, r, err}
		})
	}
	all.Wait()
	return said
}
