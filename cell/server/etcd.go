package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// startEtcd starts the member's etcd and waits until it takes part in its cell. Nobody but this
// process speaks to it as a client: its socket is in the data directory, which is for nobody else.
func startEtcd(ctx context.Context, c *Config, stopping context.Context) (*embed.Etcd, error) {
	if err := makePrivate(c.Data); err != nil {
		return nil, err
	}
	if used, err := net.Dial("unix", c.socket()); err == nil { // etcd would wait for the other one, without a word
		used.Close()
		return nil, fmt.Errorf("%s: the data are in use: another member runs there", c.Data)
	}
	e, err := embed.StartEtcd(etcdConfig(c, stopping))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-e.Server.StopNotify():
		err = errors.New("it has stopped")
	case <-ctx.Done():
		err = fmt.Errorf("the members of the cell do not agree yet: %w", ctx.Err())
	}
	e.Close()
	return nil, fmt.Errorf("etcd: %w", err)
}

// makePrivate makes a directory for nobody else, or sees that it is one.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s is open to other users (%v): give the member a directory of its own, with mode 700", dir, info.Mode().Perm())
	}
	return err
}

func etcdConfig(c *Config, stopping context.Context) *embed.Config {
	e := embed.NewConfig()
	e.Name, e.Dir = c.Name, c.etcdDir()
	e.TickMs, e.ElectionMs = uint(c.Heartbeat/time.Millisecond), uint(c.Election/time.Millisecond)
	e.QuotaBackendBytes = backendQuota
	e.BootstrapDefragThresholdMegabytes = 64 // a member that starts makes its file small
	// History of keys is kept for members that were cut off for a moment, and no longer: etcd visits all of it when it reads
	// the keys of a name.
	e.AutoCompactionMode, e.AutoCompactionRetention = embed.CompactorModePeriodic, "5s"
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(c.Log, stopping))
	socket := url.URL{Scheme: "unix", Host: c.socket()}
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	e.InitialClusterToken, e.InitialCluster, e.StrictReconfigCheck = "holdfast-cell", c.cluster(), true
	own, _ := url.Parse(c.peerURL()) // checked before
	e.AdvertisePeerUrls = []url.URL{*own}
	e.ListenPeerUrls = []url.URL{{Scheme: own.Scheme, Host: cmp.Or(c.PeerListen, own.Host)}}
	if len(c.Members) == 0 {
		e.InitialClusterToken = rand.Text() // so that each cell has another id, though its member has no address
		e.ListenPeerUrls = nil
	}
	if c.Join {
		e.ClusterState = embed.ClusterStateFlagExisting
	}
	if c.PeerTLS.set() {
		e.PeerTLSInfo = transport.TLSInfo{
			CertFile: c.PeerTLS.Cert, KeyFile: c.PeerTLS.Key, TrustedCAFile: c.PeerTLS.CA, ClientCertAuth: true,
		}
	}
	return e
}

// etcdLog writes what etcd has to say to the member's log, with etcd's own fields as JSON. etcd's warnings inform us.
// Once the member stops they are for debugging: etcd complains that its listeners are closed.
type etcdLog struct {
	log      *slog.Logger
	stopping context.Context
}

// zapTo returns a logger for etcd.
func zapTo(log *slog.Logger, stopping context.Context) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "message", LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder})
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(etcdLog{log, stopping}), zap.WarnLevel))
}

// Write implements io.Writer, for one line.
func (l etcdLog) Write(line []byte) (int, error) {
	level := slog.LevelInfo
	switch {
	case l.stopping.Err() != nil:
		level = slog.LevelDebug
	case !bytes.HasPrefix(line, []byte(`{"level":"warn"`)):
		level = slog.LevelError
	}
	l.log.Log(context.Background(), level, "etcd", "said", string(bytes.TrimSpace(line)))
	return len(line), nil
}

// within bounds a request to etcd.
const within = 5 * time.Second

// etcdStore is a member's etcd, which answers within a bounded time, and for whom a change of the leader does not mean a
// long wait. What a member has sent to a leader that dies, stands still or gives the leadership away may be lost, and
// etcd waits for an answer until the request's time is over.
type etcdStore struct {
	*etcdserver.EtcdServer
	reign atomic.Pointer[context.Context]
}

// errLeaderGone says that there is another leader than the one to which a request was sent.
var errLeaderGone = errors.New("another member leads now, and the one before may not have done what it was asked")

// settleWithin is how long requests to the leader before have to be answered after all: the next one has
// what was written by a majority, and finishes it first.
const settleWithin = 500 * time.Millisecond

func newEtcdStore(e *etcdserver.EtcdServer) *etcdStore {
	always := context.Background()
	s := &etcdStore{EtcdServer: e}
	s.reign.Store(&always)
	return s
}

// watch gives requests to a leader up when there has been another one for a while, until life ends.
func (s *etcdStore) watch(life context.Context) {
	for change := s.LeaderChangedNotify(); life.Err() == nil; {
		reign, end := context.WithCancel(context.Background())
		s.reign.Store(&reign)
		select {
		case <-change:
			change = s.LeaderChangedNotify() // before the next reign begins, so that no request of it misses one
		case <-life.Done():
		}
		time.AfterFunc(settleWithin, end)
	}
}

// ask makes a request, which is given up in time, and when another member has led for a while.
func ask[Q, A any](ctx context.Context, s *etcdStore, request func(context.Context, Q) (A, error), q Q) (answer A, err error) {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(*s.reign.Load(), func() { cancel(errLeaderGone) })()
	if answer, err = request(ctx, q); err != nil && context.Cause(ctx) == errLeaderGone {
		err = errLeaderGone
	}
	return answer, err
}

// Txn implements store. What fails may have been done.
func (s *etcdStore) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	return ask(ctx, s, s.EtcdServer.Txn, r)
}

// Range implements store.
func (s *etcdStore) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return ask(ctx, s, s.EtcdServer.Range, r)
}

// Reached implements store. It agrees with the leader, as each linearizable read does, and reads nothing. It asks again
// when the leader's end is what it fails by.
func (s *etcdStore) Reached(ctx context.Context) (int64, error) {
	for start := time.Now(); ; {
		_, err := ask(ctx, s, func(ctx context.Context, _ any) (any, error) { return nil, s.LinearizableReadNotify(ctx) }, nil)
		if !errors.Is(err, errLeaderGone) && !errors.Is(err, etcderrors.ErrLeaderChanged) || ctx.Err() != nil || time.Since(start) > within {
			return s.KV().Rev(), err
		}
	}
}
