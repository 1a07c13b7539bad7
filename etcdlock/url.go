package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/ctxerr"
	"github.com/holdfastlock/holdfast/internal/storeurl"
)

func init() {
	driver.Register("etcd", open)
	driver.Register("etcds", open)
}

// How long a connection may take to be made, how soon a silent one is asked for a sign of life (etcd refuses clients
// that ask more often), and how long it has for that.
const (
	dialTimeout   = 5 * time.Second
	silentFor     = 5 * time.Second
	signOfLife    = 2 * time.Second
	defaultPort   = "2379"
	schemeWithTLS = "etcds"
)

// open opens the driver for a URL.
func open(ctx context.Context, u *url.URL) (driver.Driver, error) {
	config, o, err := parse(u)
	if err != nil {
		return nil, err
	}
	etcd, err := newClient(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
	}
	if o.Reserve, err = newClient(ctx, config); err != nil {
		etcd.Close()
		return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
	}
	c, err := connect(ctx, etcd, true, o)
	if err != nil {
		etcd.Close()
		o.Reserve.Close()
		return nil, fmt.Errorf("%s: %w", driver.Redact(u), err)
	}
	return c, nil
}

// atOnce makes a request fail once no member can be reached. The library's own wait for a connection
// until their time is over, and do not say why there is none.
var atOnce = grpc.WaitForReady(false)

// newClient is clientv3.New until ctx ends: with a user it asks for a token before it
// returns, or fails once no member can be reached. The client lives on after ctx.
func newClient(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	var made atomic.Bool
	defer made.Store(true)
	if config.Username != "" {
		config.DialOptions = append(slices.Clip(config.DialOptions), grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, resp any, conn *grpc.ClientConn, ask grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if !made.Load() {
					opts = append(opts, atOnce)
				}
				return ask(ctx, method, req, resp, conn, opts...)
			}))
	}
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	config.Context = life
	etcd, err := clientv3.New(config)
	if stop() {
		return etcd, err
	}
	if err == nil {
		etcd.Close()
	}
	return nil, ctxerr.Of(ctx, cmp.Or(err, ctx.Err()))
}

// Config returns how a client of the etcd that a store URL names is made, for those who want to look at the store
// itself: clientv3.New takes it. Its errors show nothing of user and password.
func Config(u *url.URL) (clientv3.Config, error) {
	config, _, err := parse(u)
	return config, err
}

// parse reads a URL. Its errors show nothing of user and password.
func parse(u *url.URL) (clientv3.Config, *Options, error) {
	known := []string{"hf.layout"}
	secure := u.Scheme == schemeWithTLS
	if secure {
		known = append(known, "hf.ca", "hf.cert", "hf.key")
	}
	config := clientv3.Config{
		DialTimeout: dialTimeout, DialKeepAliveTime: silentFor, DialKeepAliveTimeout: signOfLife,
		Logger: zap.NewNop(), // what is to be known is in the errors
	}
	params, err := driver.Params(u, false, known...)
	if err != nil {
		return config, nil, err
	}
	if u.Opaque != "" || u.Fragment != "" {
		return config, nil, errors.New("store URL is malformed: it looks like etcd://host:2379,host:2379/prefix")
	}
	if u.User != nil {
		config.Username = u.User.Username()
		config.Password, _ = u.User.Password()
	}
	if config.Endpoints, err = endpoints(u.Host, secure); err != nil {
		return config, nil, err
	}
	if secure {
		files := certs.Files{CA: params["hf.ca"], Cert: params["hf.cert"], Key: params["hf.key"]}
		source, err := certs.New(files)
		if err != nil {
			return config, nil, err
		}
		config.TLS = source.Config()
		config.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(&handshakes{credentials.NewTLS(config.TLS), source})}
	}
	return config, &Options{Prefix: strings.Trim(u.Path, "/"), Layout: params["hf.layout"]}, nil
}

// endpoints reads the list of hosts.
func endpoints(hosts string, secure bool) ([]string, error) {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	list, err := storeurl.Hosts(hosts, defaultPort)
	if err != nil {
		return nil, fmt.Errorf("%w: it looks like etcd://host:2379,host:2379/prefix", err)
	}
	for i := range list {
		list[i] = scheme + list[i]
	}
	return list, nil
}

// handshakes are the TLS of connections, each with the certificates that the files have when it is made: they are
// replaced before they expire, and the client of etcd makes connections for as long as it lives.
type handshakes struct {
	credentials.TransportCredentials // by what the files had first
	source                           *certs.Source
}

// ClientHandshake implements credentials.TransportCredentials.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(h.source.Config()).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (h *handshakes) Clone() credentials.TransportCredentials {
	return &handshakes{h.TransportCredentials.Clone(), h.source}
}
