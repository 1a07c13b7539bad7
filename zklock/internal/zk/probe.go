package zk

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Role is what a server is in its ensemble.
type Role string

// The roles that decide something, as srvr tells them. Others are any other text.
const (
	Leader     Role = "leader"
	Standalone Role = "standalone"  // no ensemble
	NotServing Role = "not serving" // elects a leader, or is the leader that takes no clients
	Untold     Role = ""            // srvr is not in its 4lw.commands.whitelist
)

// leads reports whether writes are committed by the server itself.
func (r Role) leads() bool { return r == Leader || r == Standalone }

// word says a role where it is expected to lead.
func (r Role) word() string {
	switch r {
	case NotServing:
		return "not serving requests"
	case Untold:
		return "does not tell its role (srvr is not in 4lw.commands.whitelist)"
	}
	return string(r)
}

// Info is what a server says of itself by srvr.
type Info struct {
	Role    Role
	Version string // 3.8.0-…
	Zxid    int64  // the last one; its upper half is the epoch
}

// Probe asks one of the servers what it is, on a connection of its own. It uses only Dial and TLS of c.
func Probe(ctx context.Context, c Config, addr string) (Info, error) {
	name, _, _ := net.SplitHostPort(addr)
	return c.probe(ctx, address{addr, cmp.Or(name, addr)}, nil)
}

// probe asks a server. If it is not the one to which same leads, that is an error.
func (c *Config) probe(ctx context.Context, a address, same net.Conn) (Info, error) {
	nc, err := c.dial(ctx, a)
	if err != nil {
		return Info{}, err
	}
	defer nc.Close()
	if same != nil && same.RemoteAddr().String() != nc.RemoteAddr().String() {
		return Info{}, errors.New("zk: the address leads to different servers")
	}
	defer closeWith(ctx, nc)()
	if _, err := io.WriteString(nc, "srvr"); err != nil {
		return Info{}, ended(ctx, err)
	}
	b, err := io.ReadAll(io.LimitReader(nc, 1<<20))
	if len(b) == 0 {
		if err == nil {
			err = io.EOF
		}
		return Info{}, fmt.Errorf("no answer to srvr: %w", ended(ctx, err))
	}
	return parseInfo(string(b)), nil // a server resets the connection after its answer, or not
}

// parseInfo reads the answer to srvr. What it does not find stays zero.
func parseInfo(text string) Info {
	var info Info
	if strings.Contains(text, "not currently serving") {
		info.Role = NotServing
	}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch key {
		case "Mode":
			info.Role = Role(value)
		case "Zookeeper version":
			info.Version, _, _ = strings.Cut(value, ",")
		case "Zxid":
			info.Zxid, _ = strconv.ParseInt(value, 0, 64)
		}
	}
	return info
}

// address is where to connect.
type address struct {
	dial string // host:port or ip:port
	name string // whom a certificate must name
}

// addresses resolves the names of the servers, since one may stand for several. Who brings a Dial
// gets the names as they are.
func (c *Config) addresses(ctx context.Context) ([]address, error) {
	var all []address
	var errs []error
	for _, server := range c.Servers {
		name, port, err := net.SplitHostPort(server)
		ips := []string{name}
		if err == nil && c.Dial == nil && net.ParseIP(name) == nil {
			ips, err = net.DefaultResolver.LookupHost(ctx, name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, ip := range ips {
			all = append(all, address{net.JoinHostPort(ip, port), name})
		}
	}
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	return all, nil
}

// dial connects, and makes the TLS handshake if there is to be one.
func (c *Config) dial(ctx context.Context, a address) (net.Conn, error) {
	dial := c.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	nc, err := dial(ctx, a.dial)
	if err != nil || c.TLS == nil {
		return nc, err
	}
	config := c.TLS()
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = a.name
	}
	t := tls.Client(nc, config)
	if err := t.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, ended(ctx, err)
	}
	return t, nil
}

// closeWith makes reads and writes of nc fail when ctx ends. The function that it returns stops that.
func closeWith(ctx context.Context, nc net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
}

// ended returns ctx's error in place of what followed from its end.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
