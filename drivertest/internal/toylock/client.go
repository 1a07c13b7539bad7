// Package toylock keeps locks in a toy server.
package toylock

import (
	"context"
	"errors"
	"net"
	"net/rpc"
	"net/url"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// Client is a driver: a connection to a Store.
type Client struct {
	addr, store string

	mu     sync.Mutex
	conn   *rpc.Client // nil: none
	closed bool
}

// requestTimeout bounds each request.
const requestTimeout = 5 * time.Second

// connection returns the client's connection, and makes one if there is none.
func (c *Client) connection(ctx context.Context) (*rpc.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, driver.ErrClosed
	}
	if c.conn == nil {
		made, err := new(net.Dialer).DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return nil, err
		}
		c.conn = rpc.NewClient(made)
	}
	return c.conn, nil
}

// call asks the store. If it fails, sent says whether the store may have done it.
func (c *Client) call(ctx context.Context, method string, args, reply any) (sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	conn, err := c.connection(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return false, err
	}
	call := conn.Go("Store."+method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return true, ctx.Err()
	case <-call.Done:
	}
	if _, answered := call.Error.(rpc.ServerError); call.Error != nil && !answered {
		c.mu.Lock()
		if c.conn == conn {
			c.conn = nil // the next call makes another
		}
		c.mu.Unlock()
		conn.Close()
	}
	return true, call.Error
}

// Try implements driver.Driver.
func (c *Client) Try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Mode != driver.Exclusive {
		return driver.Grant{}, driver.ErrUnsupported
	}
	since := driver.HostClock.Now() // before the request goes out
	reply := &TakeReply{}           // may be written after this call has returned
	sent, err := c.call(ctx, "Take", r, reply)
	switch {
	case err != nil && sent:
		return driver.Grant{Request: r}, driver.Uncertain(err)
	case err != nil:
		return driver.Grant{}, err
	case reply.Withdrawn:
		return driver.Grant{}, driver.ErrNotHeld
	case reply.Held:
		return driver.Grant{}, &driver.HeldError{
			Name: r.Name, Note: reply.Note, Token: reply.Token, ExpiresIn: reply.ExpiresIn,
		}
	}
	return driver.Grant{Request: r, Token: reply.Token, Since: since, Valid: r.TTL}, nil
}

// Renew implements driver.Driver.
func (c *Client) Renew(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	renewals := make([]driver.Renewal, len(grants))
	since := driver.HostClock.Now()
	reply := &[]bool{}
	_, err := c.call(ctx, "Renew", grants, reply)
	for i, g := range grants {
		switch {
		case err != nil:
			renewals[i].Err = err
		case !(*reply)[i]:
			renewals[i].Err = driver.ErrNotHeld
		default:
			renewals[i] = driver.Renewal{Since: since, Valid: g.TTL}
		}
	}
	return renewals
}

// Release implements driver.Driver.
func (c *Client) Release(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	reply := &[]bool{}
	_, err := c.call(ctx, "Release", grants, reply)
	for i, g := range grants {
		if err != nil {
			errs[i] = err
		} else if !(*reply)[i] && g.Token != 0 {
			errs[i] = driver.ErrNotHeld
		}
	}
	return errs
}

func init() { driver.Register("toy", open) }

// open opens toy://host:port.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	if _, err := driver.Params(u, false); err != nil {
		return nil, err
	}
	if u.Port() == "" || u.User != nil || u.Path != "" {
		return nil, errors.New("the URL of a toy store is toy://host:port")
	}
	c := &Client{addr: u.Host}
	id := new(string)
	if _, err := c.call(ctx, "Hello", struct{}{}, id); err != nil {
		c.Close()
		return nil, err
	}
	c.store = "toy:" + *id
	return c, nil
}

// Close implements driver.Driver.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.conn != nil {
		c.conn.Close() // fails if it has ended
		c.conn = nil
	}
	return nil
}

// Caps implements driver.Driver.
func (c *Client) Caps() driver.Caps {
	kept := driver.Verdict{Exclusion: driver.Keeps, Tokens: driver.Keeps, Note: "Holds are in a file."}
	return driver.Caps{
		Store: c.store, Fencing: true, Poll: 400 * time.Millisecond,
		Guarantees: driver.Guarantees{
			Summary: "One server, whose file is all there is.", Tokens: "A counter in the file.",
			Faults: driver.CommonFaults(map[driver.Fault]driver.Verdict{
				driver.StoreRestart: kept,
				driver.StoreWiped:   {Exclusion: driver.Breaks, Tokens: driver.Breaks, Note: "The file is all there is."},
				driver.Failover:     {Exclusion: driver.Impossible, Tokens: driver.Impossible, Note: "There is one server."},
				driver.ClockForward: {Exclusion: driver.Breaks, Tokens: driver.Keeps, Note: "Holds end early."},
				driver.ClockBack:    {Exclusion: driver.Delays, Tokens: driver.Keeps, Note: "Holds end late."},
				driver.DiskFull:     kept,
			}),
		},
	}
}
