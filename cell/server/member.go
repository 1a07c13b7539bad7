package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"golang.org/x/net/netutil"

	"github.com/holdfastlock/holdfast/cell/cellv1/cellv1connect"
	"github.com/holdfastlock/holdfast/internal/certs"
	"github.com/holdfastlock/holdfast/internal/pause"
)

// Member is a running member of a cell. Its methods are safe for concurrent use.
type Member struct {
	config Config
	etcd   *embed.Etcd
	client *clientv3.Client // of this etcd, in the process
	front  *front
	http   *http.Server
	addr   net.Addr

	reserve atomic.Int64 // see Config

	certificates *certs.Source              // nil: none
	tls          atomic.Pointer[tls.Config] // for clients

	stopping context.Context // until parked calls are to go to another member
	handOver context.CancelFunc
	die      context.CancelFunc
	stop     sync.Once
	stopErr  error
	failed   chan error // what ends the member by itself
}

// Start starts a member, and returns when it serves clients. The context bounds the start only.
func Start(ctx context.Context, c Config) (*Member, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	guard, err := newGuard(&c)
	if err != nil {
		return nil, fmt.Errorf("%w: principals: %w", ErrConfig, err)
	}
	m := &Member{config: c, failed: make(chan error, 1)}
	m.reserve.Store(c.Reserve)
	if c.TLS.set() {
		if m.certificates, err = certs.New(certs.Files(c.TLS)); err != nil {
			return nil, fmt.Errorf("%w: certificate: %w", ErrConfig, err)
		}
		m.setTLS()
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, err
	}
	m.addr = listener.Addr()
	m.stopping, m.handOver = context.WithCancel(context.Background())
	if m.etcd, err = startEtcd(ctx, &c, m.stopping); err != nil {
		listener.Close()
		return nil, err
	}
	var life context.Context
	life, m.die = context.WithCancel(context.Background())
	asked := newEtcdStore(m.etcd.Server)
	m.front = newFront(life, m.stopping, asked, &c, guard)
	m.front.background.Go(func() { asked.watch(life) })
	m.front.leads, m.front.shortage = m.leads, m.shortage
	m.client = v3client.New(m.etcd.Server)
	if err = m.until(ctx, m.join); err == nil {
		err = m.until(ctx, m.identify)
	}
	if err == nil {
		m.front.run(m.client)
		err = m.until(ctx, func(ctx context.Context) error { return m.front.mirror.reach(ctx, 1) }) // it is loaded
	}
	if err != nil {
		listener.Close()
		m.Stop(ctx)
		return nil, err
	}
	m.serve(listener)
	return m, nil
}

// until tries a step of the start until it is done: a majority of the members must run for it.
func (m *Member) until(ctx context.Context, step func(context.Context) error) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, within)
		err := step(bounded)
		cancel()
		if err == nil || err == errNoMember {
			return err
		}
		m.front.log.Info("this member does not count yet", "reason", err)
		if !pause.Sleep(ctx, retryEvery) {
			return fmt.Errorf("this member does not count yet: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// serve serves clients until the member stops.
func (m *Member) serve(l net.Listener) {
	mux := http.NewServeMux()
	metrics := newMetrics(m)
	options := connect.WithHandlerOptions(connect.WithReadMaxBytes(maxRequest), rarelyCompressed,
		connect.WithInterceptors(connect.UnaryInterceptorFunc(metrics.count), connect.UnaryInterceptorFunc(checked)))
	mux.Handle(cellv1connect.NewSessionsHandler(sessions{m.front}, options))
	mux.Handle(cellv1connect.NewLocksHandler(locks{m.front}, options))
	mux.Handle(cellv1connect.NewFilesHandler(files{m.front}, options))
	mux.Handle(cellv1connect.NewCellHandler(cell{m}, options))
	m.mountConsole(mux)
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{metrics.registry, prometheus.DefaultGatherer}, promhttp.HandlerOpts{}))
	all := http.NewServeMux()
	all.HandleFunc("GET /healthz", m.health(false))
	all.HandleFunc("GET /readyz", m.health(true))
	all.Handle("/", &gate{front: m.front, next: mux, errors: connect.NewErrorWriter(), local: m.config.local()})
	m.http = newServer(all, m.config.patience, m.front.log)
	l = netutil.LimitListener(l, m.config.Connections)
	if m.certificates != nil {
		l = m.withTLS(l)
	}
	m.front.background.Go(func() { m.front.each(recheckEvery, m.recheck) })
	m.front.background.Go(func() {
		if err := m.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			m.fail(err)
		}
	})
	m.front.background.Go(func() {
		select {
		case err := <-m.etcd.Err():
			m.fail(fmt.Errorf("etcd: %w", err))
		case <-m.etcd.Server.StopNotify():
			m.fail(errors.New("etcd has stopped"))
		case <-m.front.life.Done():
		}
	})
}

// recheck looks for changes of what says who may call.
func (m *Member) recheck() {
	if err := m.front.guard.read(); err != nil { // as of one that is just being written
		m.front.log.Error("the principals stay as they were", "error", err)
	}
	if m.certificates == nil {
		return
	}
	switch changed, err := m.certificates.Reread(); {
	case err != nil:
		m.front.log.Error("the certificates stay as they were", "error", err)
	case changed:
		m.setTLS()
		m.front.log.Info("certificates were read anew")
	}
}

func (m *Member) fail(err error) {
	select {
	case m.failed <- err:
	default:
	}
}

// Failed is sent what ends the member by itself. It must be stopped all the same.
func (m *Member) Failed() <-chan error { return m.failed }

// Addr is where the member listens for clients.
func (m *Member) Addr() string { return m.addr.String() }

// URL is the store URL of the member.
func (m *Member) URL() string {
	if m.config.TLS.set() {
		return "cells://" + m.Addr()
	}
	return "cell://" + m.Addr()
}

// Stop stops the member. Before that it sends its clients to other members, and gives the leadership
// away if it has it, so that none of them is delayed. When the context ends it is stopped all the same.
func (m *Member) Stop(ctx context.Context) error {
	m.stop.Do(func() {
		m.handOver()
		if len(m.config.Members) > 1 && m.leads() {
			if err := m.etcd.Server.TryTransferLeadershipOnShutdown(); err != nil {
				m.front.log.Warn("the leadership was not given away", "error", err)
			}
		}
		if m.http != nil {
			bounded, cancel := context.WithTimeout(ctx, within) // a connection that has just come may not be told
			if m.http.Shutdown(bounded) != nil {
				m.stopErr = m.http.Close()
			}
			cancel()
		}
		m.die()
		m.client.Close()
		m.etcd.Close()
		m.front.background.Wait()
	})
	return m.stopErr
}

func (m *Member) leads() bool { return m.etcd.Server.Leader() == m.etcd.Server.MemberID() }
