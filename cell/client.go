// Package cell is the client of the lock service that "holdfast serve" runs: sessions with a cell of
// one, three or five members.
//
// Locks have a simpler package: celllock, a store like others for package holdfast. It stands on this
// one. Programs in other languages speak to a cell by Connect, gRPC or plain HTTP with JSON: see the
// proto files.
package cell

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
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
	// TokenFile is a file with the token, instead of Token. It is read for each call, so that it can be replaced: by
	// renaming another file, because a call fails that finds no token in it.
	TokenFile string
	// Clock is the clock that sessions are trusted by. nil: driver.HostClock.
	Clock driver.Clock
}

// Client reaches a cell at one of its members, and at another one if that does not answer. Safe for
// concurrent use.
type Client struct {
	members   []*Member
	current   atomic.Int32 // index of the member that is used
	transport *http.Transport
	tls       func() *tls.Config
	clock     driver.Clock
	life      context.Context // until Close
	die       context.CancelFunc
}

// Member is the API of one member.
type Member struct {
	Address  string
	Sessions cellv1connect.SessionsClient
	Locks    cellv1connect.LocksClient
	Files    cellv1connect.FilesClient
	Cell     cellv1connect.CellClient
}

const maxMembers = 64

// New returns a client. It makes no contact.
func New(c Config) (*Client, error) {
	switch {
	case len(c.Members) == 0 || len(c.Members) > maxMembers:
		return nil, fmt.Errorf("%d members: between 1 and %d are right", len(c.Members), maxMembers)
	case c.Token != "" && c.TokenFile != "":
		return nil, errors.New("a token and a file with one: one of them is right")
	}
	protocols, scheme := new(http.Protocols), "http"
	protocols.SetUnencryptedHTTP2(true)
	if c.TLS != nil {
		protocols.SetHTTP2(true)
		scheme = "https"
	}
	client := &Client{clock: cmp.Or(c.Clock, driver.HostClock), tls: c.TLS}
	client.transport = &http.Transport{
		Protocols: protocols, DialContext: client.dial, DialTLSContext: client.dial,
		// A connection on which nothing has come for longer than the call of a session of 30 s is parked is tried, and
		// given up if that fails: so idle sessions cost no pings. Members need not remember the headers of calls, of
		// which each would cost them memory.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWithin, MaxEncoderHeaderTableSize: noTable},
	}
	token := &bearer{client.transport, &c}
	if _, err := token.token(); err != nil {
		return nil, err
	}
	client.life, client.die = context.WithCancel(context.Background())
	h, option := &http.Client{Transport: token}, connect.WithReadMaxBytes(maxResponse)
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
	pingAfter     = 13 * time.Second
	pingWithin    = 2 * time.Second
	maxResponse   = 64 << 20
	noTable       = 1 // bytes: a table that has room for no header
)

// Close closes the connections. Calls that are under way fail.
func (c *Client) Close() {
	c.die()
	c.transport.CloseIdleConnections()
}

// Clock is the clock that sessions are trusted by.
func (c *Client) Clock() driver.Clock { return c.clock }

// Do makes a call at the member that is used at present. If that has certainly not taken the call in,
// another one is asked; if repeat is set, also if nobody knows that, or if it has not answered within two seconds: it
// may stand still. The last one may take as long as the context. An error that is an answer of the cell has a
// reason (see ReasonOf).
func (c *Client) Do(ctx context.Context, repeat bool, call func(context.Context, *Member) error) error {
	var refused error // by a member; says more than that another one does not answer
	var lost error    // of a call that a member may have taken in: nothing that another one says makes that certain
	for tries := 1; ; tries++ {
		at := c.current.Load()
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if repeat && tries < len(c.members) {
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
		case reason != cellv1.Reason_REASON_UNSPECIFIED:
			return err
		case repeat:
			lost = cmp.Or(lost, err)
		default:
			c.leave(at)
			return err
		}
		c.leave(at)
		if tries >= len(c.members) {
			return cmp.Or(lost, refused, err)
		}
	}
}

// Call makes one call of a service of the API, as Do does:
//
//	cell.Call(ctx, c, true, cellv1connect.LocksClient.Inspect, &cellv1.InspectRequest{Name: "n"})
func Call[S, Q, A any](
	ctx context.Context, c *Client, repeat bool, call func(S, context.Context, Q) (A, error), request Q,
) (answer A, err error) {
	err = c.Do(ctx, repeat, func(ctx context.Context, m *Member) (err error) {
		for _, service := range []any{m.Sessions, m.Locks, m.Files, m.Cell} {
			if s, ok := service.(S); ok {
				answer, err = call(s, ctx, request)
			}
		}
		return err
	})
	return answer, err
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

// MemberStatus is what a member says of itself and of the cell. Its JSON form is an interface: fields may be added.
type MemberStatus struct {
	Address                string `json:"address"`         // as in Config.Members
	Error                  string `json:"error,omitempty"` // why it does not answer; "": it does
	*cellv1.StatusResponse        // nil: it does not answer
}

// Statuses asks all members that the configuration names, at the same time, in its order. It returns when
// all have answered, or the context ends. Safe for concurrent use.
func (c *Client) Statuses(ctx context.Context) []MemberStatus {
	said := make([]MemberStatus, len(c.members))
	var all sync.WaitGroup
	for i, m := range c.members {
		all.Go(func() {
			r, err := m.Cell.Status(ctx, &cellv1.StatusRequest{})
			if said[i] = (MemberStatus{Address: m.Address, StatusResponse: r}); err != nil {
				said[i].Error = err.Error()
			}
		})
	}
	all.Wait()
	return said
}

// connection is closed with its client: the HTTP library closes only those that it knows to be idle.
type connection struct {
	net.Conn
	forget func() bool
}

// Close closes the connection.
func (c *connection) Close() error {
	c.forget()
	return c.Conn.Close()
}

// dial makes a connection, with TLS if the members have it. Whatever fails was not sent: see NotSent.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	raw, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := &connection{raw, context.AfterFunc(c.life, func() { raw.Close() })}
	if c.tls == nil {
		return conn, nil
	}
	config := c.tls()
	config.NextProtos = []string{"h2"}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return secure, nil
}

// bearer says in each call who the client is, if that has a token.
type bearer struct {
	next   http.RoundTripper
	config *Config
}

const maxToken = 4096 // bytes

// token returns the token that the client has now, or "". Its errors do not show it.
func (b *bearer) token() (string, error) {
	token := b.config.Token
	if file := b.config.TokenFile; file != "" {
		text, err := os.ReadFile(file)
		if token = string(bytes.TrimSpace(text)); err == nil && token == "" {
			err = fmt.Errorf("%s: there is no token in it", file)
		}
		if err != nil {
			return "", err
		}
	}
	if len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("the token has more than %d characters, or one that no token has", maxToken)
	}
	return token, nil
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.token()
	if err != nil {
		r.Body.Close()
		return nil, &net.OpError{Op: "dial", Err: err} // nothing was sent
	}
	if token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return b.next.RoundTrip(r)
}
