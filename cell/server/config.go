package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/internal/storeurl"
)

// Config is how a member runs. The zero value and a directory are right for a cell of one member for
// this host alone.
type Config struct {
	// Name tells the members of the cell apart: 1 to 64 letters, digits, dots and dashes. "": "one".
	Name string
	// Data is the directory where the member keeps all that it has. It is made, for nobody else to
	// read, if it is not there.
	Data string
	// Listen is where clients come to, as host:port. "": 127.0.0.1:7433.
	Listen string
	// TLS is the member's certificate for clients. The zero value: none, which is right on a loopback
	// address only.
	TLS TLS
	// Principals is a file that says who may do what: see docs/cell.md. It is read again when it
	// changes. "": everybody may do everything whose certificate TLS.CA knows, or, without that
	// either, who reaches the member.
	Principals string
	// Insecure allows an address beyond this host without TLS, or without principals.
	Insecure bool
	// Connections is how many connections of clients there may be. 0: DefaultConnections.
	Connections int

	// Members are the peer URLs of all members of a new cell, this one's included, by their names.
	// Empty: it is the only one, and listens to no other.
	Members map[string]string
	// Join says that the cell is there already, and knows of this member.
	Join bool
	// PeerListen is where the other members come to, if not to the host and port of the member's own
	// peer URL.
	PeerListen string
	// PeerTLS is the certificate that the member has among its peers, which is needed wherever they
	// are not all on this host.
	PeerTLS TLS

	// Heartbeat is how often the leader gives a sign of life to the other members, and Election how
	// long they wait for it. 0: 100 ms and 1 s. The shortest TTL of a session is one and a half times
	// Election, in whole seconds.
	Heartbeat, Election time.Duration

	// Reserve is how much of the disk stays free, in bytes: below it nobody gets anything new, while
	// sessions go on and locks are released. 0: DefaultReserve. Negative: nothing.
	Reserve int64

	// Log is told what happens. nil: slog.Default().
	Log *slog.Logger
	// Audit is told who has broken a hold, killed a session, or changed rights or members. nil: Log.
	Audit *slog.Logger

	patience patience // with clients; the zero value: usualPatience
}

// TLS are files with a certificate, its private key, and the authority that signs those of the other
// side. They are read again when they change.
type TLS struct {
	CA, Cert, Key string
}

func (t TLS) set() bool { return t != TLS{} }

// DefaultConnections is how many connections a member takes that was not told.
const DefaultConnections = 20_000

// DefaultListen is where a member listens that was not told.
const DefaultListen = "127.0.0.1:7433"

// withDefaults returns the configuration with what was left out.
func (c Config) withDefaults() Config {
	c.Name, c.Listen = cmp.Or(c.Name, "one"), cmp.Or(c.Listen, DefaultListen)
	c.Heartbeat, c.Election = cmp.Or(c.Heartbeat, 100*time.Millisecond), cmp.Or(c.Election, time.Second)
	c.Reserve = cmp.Or(c.Reserve, DefaultReserve)
	c.Log = cmp.Or(c.Log, slog.Default())
	c.Audit = cmp.Or(c.Audit, c.Log)
	c.patience = cmp.Or(c.patience, usualPatience)
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	return c
}

// ErrConfig says that a configuration is wrong.
var ErrConfig = errors.New("the member's configuration is wrong")

// check returns an error that says what is wrong (P10).
func (c *Config) check() error {
	for _, check := range []func() error{c.checkSelf, c.checkMembers, c.checkPeers} {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	return nil
}

func (c *Config) checkSelf() error {
	allowed := storeurl.Loopback(c.Listen) || c.Insecure
	switch _, _, err := net.SplitHostPort(c.Listen); {
	case c.Data == "":
		return errors.New("the data directory is missing")
	case len(c.socket()) > longestSocket:
		return fmt.Errorf("the data directory %s: its path is too long by %d bytes for a socket in it", c.Data, len(c.socket())-longestSocket)
	case err != nil:
		return fmt.Errorf("listen: %w: host:port is right", err)
	case !allowed && !c.TLS.set():
		return fmt.Errorf("listen: %s is not of this host alone, and there is no certificate: "+
			"everybody on the network could read session secrets. Give the member a certificate, or allow it by --insecure", c.Listen)
	case !allowed && !c.knowsPrincipals():
		return fmt.Errorf("listen: %s is not of this host alone, and nobody is asked who he is: everybody on the "+
			"network could take every lock. Name the authority of clients' certificates, or a file of principals, or allow it by --insecure", c.Listen)
	case c.Connections < 1:
		return fmt.Errorf("%d connections: at least 1 is right", c.Connections)
	case c.TLS.set() && (c.TLS.Cert == "" || c.TLS.Key == ""):
		return errors.New("a certificate and its key belong together")
	case c.Heartbeat < time.Millisecond || c.Election < 5*c.Heartbeat || c.Election > 50*time.Second:
		return fmt.Errorf("heartbeat %v and election %v: the second must be at least five times the first, and at most 50 s", c.Heartbeat, c.Election)
	}
	return nil
}

// knowsPrincipals reports whether callers are asked who they are.
func (c *Config) knowsPrincipals() bool { return c.Principals != "" || c.TLS.CA != "" }

// local reports whether everybody is admitted because nobody comes from another host.
func (c *Config) local() bool {
	return storeurl.Loopback(c.Listen) && !c.knowsPrincipals() && !c.Insecure
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-"

func checkMemberName(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(name, nameChars) != "" {
		return fmt.Errorf("member name %.80q: 1 to 64 letters, digits, dots and dashes are right", name)
	}
	return nil
}

// checkMembers checks the names and URLs of members.
func (c *Config) checkMembers() error {
	if c.Members[c.Name] == "" && len(c.Members) > 0 {
		return fmt.Errorf("members: %s, this member's own name, is not among them", c.Name)
	}
	for name, text := range c.Members {
		if !isPeerURL(text) {
			return fmt.Errorf("members: %.80q of %s: https://host:port is right", text, name)
		}
		if err := checkMemberName(name); err != nil {
			return err
		}
	}
	return checkMemberName(c.Name)
}

// checkPeers checks what members, whose URLs are right, know of one another.
func (c *Config) checkPeers() error {
	tls := c.PeerTLS.set()
	switch {
	case len(c.Members) == 0 && (c.Join || c.PeerListen != "" || tls):
		return errors.New("peers: the list of members is missing")
	case tls && (c.PeerTLS.Cert == "" || c.PeerTLS.Key == "" || c.PeerTLS.CA == ""):
		return errors.New("peers: a certificate, its key and the authority of the other members' belong together")
	}
	for _, text := range c.Members {
		u, _ := url.Parse(text)
		switch {
		case (u.Scheme == "https") != tls:
			return fmt.Errorf("members: %s: https and the peers' certificate belong together", text)
		case u.Scheme == "http" && !storeurl.Loopback(u.Hostname()):
			return fmt.Errorf("members: %s: among several hosts members need certificates", text)
		}
	}
	return nil
}

// isPeerURL reports whether members may find another one by a URL.
func isPeerURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && u.Port() != "" && u.Path == "" && (u.Scheme == "http" || u.Scheme == "https")
}

// peerURL is where the other members find this one. One that listens to no other has a URL all the same.
func (c *Config) peerURL() string {
	if u, ok := c.Members[c.Name]; ok {
		return u
	}
	return "unix://" + c.Name
}

// cluster is the list of members as etcd wants it.
func (c *Config) cluster() string {
	all := []string{c.Name + "=" + c.peerURL()}
	for name, u := range c.Members {
		if name != c.Name {
			all = append(all, name+"="+u)
		}
	}
	return strings.Join(all, ",")
}

// longestSocket is how long the path of a socket may be on every system, in bytes.
const longestSocket = 103

// socket is where etcd listens for its clients: nobody beyond the data directory.
func (c *Config) socket() string  { return filepath.Join(c.Data, "etcd.sock") }
func (c *Config) etcdDir() string { return filepath.Join(c.Data, "etcd") }
