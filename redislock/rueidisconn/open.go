package rueidisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/storeurl"
	"github.com/holdfastlock/holdfast/quorum"
	"github.com/holdfastlock/holdfast/redislock"
)

func init() {
	for _, scheme := range []string{"redis", "rediss", "redis+unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"} {
		driver.Register(scheme, open)
	}
	driver.Register("redlock", quorum.Opener("redis", "hf.layout"))
}

// dialTimeout bounds the making of a connection.
const dialTimeout = 5 * time.Second

// keepAlive is how long a connection is idle before it is tried. With rueidis' default, a second, most
// of the commands that a server gets from clients that only wait would be for that.
const keepAlive = 5 * time.Second

// flushDelay is how long a request of rueidis waits, if others are under way, so that it is sent with
// more. It saves a third of the client's processor time if there are many.
const flushDelay = 20 * time.Microsecond

// open opens the driver for a URL.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	conn, o, err := connectWithin(ctx, u)
	if err != nil {
		return nil, err
	}
	return redislock.New(ctx, conn, o)
}

// connectWithin is connect until ctx ends. Rueidis makes its first connection without looking at a
// context; if ctx ends before that, the connection is closed when it is there.
func connectWithin(ctx context.Context, u *url.URL) (redislock.Conn, *redislock.Options, error) {
	type outcome struct {
		conn redislock.Conn
		o    *redislock.Options
		err  error
	}
	made := make(chan outcome, 1)
	go func() {
		conn, o, err := connect(u)
		made <- outcome{conn, o, err}
	}()
	select {
	case m := <-made:
		return m.conn, m.o, m.err
	case <-ctx.Done():
		go func() {
			if m := <-made; m.err == nil {
				m.conn.Close()
			}
		}()
		return nil, nil, ctx.Err()
	}
}

// Dial connects to the server that a store URL names, for programs that examine the server itself. The
// caller closes the Conn. A refusal by the server is a *redislock.ServerError, in an error that says
// what to do. No error shows the password.
func Dial(u *url.URL) (redislock.Conn, error) {
	conn, _, err := connect(u)
	return conn, err
}

func connect(u *url.URL) (redislock.Conn, *redislock.Options, error) {
	option, o, err := parse(u)
	if err != nil {
		return nil, nil, err
	}
	var conn redislock.Conn
	switch {
	case option.Sentinel.MasterSet != "":
		conn, err = follow(option)
	case strings.HasSuffix(u.Scheme, "+cluster"):
		conn, err = join(option)
	default:
		conn, err = atAddress(option)
	}
	if err != nil {
		return nil, nil, fromServer(withoutTLS(u, err))
	}
	return conn, o, nil
}

// single connects to one server.
func single(option rueidis.ClientOption) (*opened, error) {
	client, err := rueidis.NewClient(option)
	if err != nil {
		if client != nil { // rueidis returns one all the same, which goes on trying
			client.Close()
		}
		return nil, err
	}
	return &opened{conn: conn{client: client}, option: option}, nil
}

// withoutTLS explains a server that does not reply because it takes the first message of TLS for the
// beginning of a command.
func withoutTLS(u *url.URL, err error) error {
	if strings.HasPrefix(u.Scheme, "rediss") && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no TLS connection within %v: if the server does not speak TLS there, the scheme is redis%s: %w", dialTimeout, strings.TrimPrefix(u.Scheme, "rediss"), err)
	}
	return err
}

// fromServer returns the error of a first contact as a refusal by the server or as an error of the
// network, like those of dialling. Errors of TLS, and of a server that is not Redis, are of the
// network.
func fromServer(err error) error {
	err = failure(err)
	if refused := (*redislock.ServerError)(nil); errors.As(err, &refused) {
		return redislock.Explain(err)
	}
	if strings.Contains(err.Error(), "unknown message type") {
		err = fmt.Errorf("what listens there does not speak the protocol of Redis: %w", err)
	}
	if network := net.Error(nil); errors.As(err, &network) {
		return err
	}
	return &net.OpError{Op: "greet", Net: "redis", Err: err}
}

// parse reads a URL. Its errors show nothing of user and password.
func parse(u *url.URL) (rueidis.ClientOption, *redislock.Options, error) {
	known := []string{"hf.wait", "hf.layout", "hf.redisson", "hf.replicas"}
	network, deployment, _ := strings.Cut(u.Scheme, "+")
	switch {
	case deployment == "unix":
		known = append(known, "hf.db")
	case network == "rediss":
		known = append(known, "hf.ca", "hf.cert", "hf.key")
	}
	params, err := driver.Params(u, false, known...)
	if err != nil {
		return rueidis.ClientOption{}, nil, err
	}
	option := rueidis.ClientOption{
		ForceSingleClient: true,
		DisableCache:      true, // we read nothing that could be cached
		DisableRetry:      true, // what may be asked again is decided above
		MaxFlushDelay:     flushDelay,
		Dialer:            net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive},
	}
	if u.User != nil {
		option.Username = u.User.Username()
		var ok bool
		if option.Password, ok = u.User.Password(); !ok {
			return rueidis.ClientOption{}, nil, errors.New("store URL has a user without a password: it looks like redis://user:password@host, or redis://:password@host without a user")
		}
	}
	db := params["hf.db"]
	switch {
	case u.Opaque != "" || u.Fragment != "":
		err = errors.New("store URL is malformed: it looks like redis://host:6379/0")
	case deployment == "unix":
		err = parseSocket(u, &option)
	default:
		db, err = parseHosts(u, deployment, &option)
		if err == nil && network == "rediss" {
			err = secure(&option, params)
		}
	}
	if err == nil && db != "" {
		option.SelectDB, err = strconv.Atoi(db)
		if err != nil || option.SelectDB < 0 {
			err = fmt.Errorf("database %.40q is not a number from 0 up", db)
		}
	}
	o := &redislock.Options{
		Wait: redislock.Wait(params["hf.wait"]), Layout: redislock.Layout(params["hf.layout"]),
		Redisson: redislock.RedissonKind(params["hf.redisson"]),
	}
	if n := params["hf.replicas"]; err == nil && n != "" {
		if o.Replicas, err = strconv.Atoi(n); err != nil || o.Replicas < 0 || o.Replicas > redislock.MaxReplicas {
			err = fmt.Errorf("hf.replicas %.40q is not a number from 0 to %d", n, redislock.MaxReplicas)
		}
	}
	if err == nil {
		err = o.Check()
	}
	return option, o, err
}

// parseHosts reads what a URL of a deployment says of hosts, and returns its database.
func parseHosts(u *url.URL, deployment string, option *rueidis.ClientOption) (db string, err error) {
	option.DialCtxFn = dialTCP
	db = strings.Trim(u.Path, "/")
	port, example := "6379", "host:6379/0"
	if deployment == "cluster" {
		example = "host:6379,host:6379"
	}
	if deployment == "sentinel" {
		port, example = "26379", "host:26379,host:26379/PRIMARY"
		option.Sentinel.MasterSet, db, _ = strings.Cut(db, "/")
		if option.Sentinel.MasterSet == "" {
			return "", fmt.Errorf("store URL does not name the primary: it looks like %s://%s, with the name by which the sentinels know it", u.Scheme, example)
		}
	}
	if option.InitAddress, err = storeurl.Hosts(u.Host, port); err != nil {
		return "", fmt.Errorf("%w: it looks like %s://%s", err, u.Scheme, example)
	}
	switch {
	case deployment == "" && len(option.InitAddress) > 1:
		return "", errors.New("store URL has several hosts: those of sentinels belong in redis+sentinel://, those of a cluster in redis+cluster://")
	case deployment == "cluster" && db != "" && db != "0":
		return "", fmt.Errorf("database %.40q: a cluster has database 0 only", db)
	}
	return db, nil
}

func dialTCP(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return dialer.DialContext(ctx, "tcp", address)
}

// secure sets up TLS, with the files that the parameters name: they are read again
// for each connection, because they are replaced before they expire.
func secure(option *rueidis.ClientOption, params map[string]string) error {
	source, err := certs.New(certs.Files{CA: params["hf.ca"], Cert: params["hf.cert"], Key: params["hf.key"]})
	if err != nil {
		return err
	}
	option.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		config := source.Config()
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config.ServerName = host
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
	}
	return nil
}

func parseSocket(u *url.URL, option *rueidis.ClientOption) error {
	if u.Host != "" || u.Path == "" || u.Path == "/" {
		return errors.New("store URL has no socket: it looks like redis+unix:///run/redis/redis.sock, with three slashes")
	}
	option.InitAddress = []string{u.Path}
	option.DialCtxFn = func(ctx context.Context, path string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", path)
	}
	return nil
}
