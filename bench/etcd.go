package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	_ "github.com/holdfastlock/holdfast/etcdlock"
)

func init() {
	stores["etcd"] = &store{
		name: "etcd", floor: "raw clientv3", ours: "holdfast", work: etcdWork,
		peers: []peer{
			{name: "raw clientv3", open: openRawEtcd, skips: []string{"hot", "hot4", "handoff", "wait", "hold"}},
			{name: "holdfast", open: func(ctx context.Context, addr string) (Locker, error) { return openHoldfast(ctx, "etcd://"+addr) }},
			{name: "concurrency.Mutex, a session each", open: openStockEtcd},
		},
	}
}

func newEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// rawEtcd is one transaction and one delete, on one lease: the floor.
type rawEtcd struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
}

func openRawEtcd(ctx context.Context, addr string) (Locker, error) {
	client, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	lease, err := client.Grant(ctx, 600)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &rawEtcd{client, lease.ID}, nil
}

func (r *rawEtcd) Lock(ctx context.Context, name string) (func() error, error) {
	_, err := r.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
		Then(clientv3.OpPut(name, "an owner of 26 characters.", clientv3.WithLease(r.lease))).Commit()
	return func() error { _, err := r.client.Delete(ctx, name); return err }, err
}

func (r *rawEtcd) Close() error { return r.client.Close() }

// stockEtcd is etcd's own Mutex. Two goroutines with one session do not keep one
// another out, so each has its own while it wants a lock; sessions are used again.
type stockEtcd struct {
	client *clientv3.Client
	mu     sync.Mutex
	idle   []*concurrency.Session
}

func openStockEtcd(_ context.Context, addr string) (Locker, error) {
	client, err := newEtcd(addr)
	return &stockEtcd{client: client}, err
}

func (s *stockEtcd) session() (*concurrency.Session, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		defer s.mu.Unlock()
		session := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return session, nil
	}
	s.mu.Unlock()
	return concurrency.NewSession(s.client, concurrency.WithTTL(int(ttl.Seconds())))
}

func (s *stockEtcd) lock(ctx context.Context, name string) (*concurrency.Session, *concurrency.Mutex, error) {
	session, err := s.session()
	if err != nil {
		return nil, nil, err
	}
	m := concurrency.NewMutex(session, name)
	return session, m, m.Lock(ctx)
}

func (s *stockEtcd) Lock(ctx context.Context, name string) (func() error, error) {
	session, m, err := s.lock(ctx, name)
	return func() error {
		err := m.Unlock(context.Background())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle = append(s.idle, session)
		return err
	}, err
}

func (s *stockEtcd) Hold(ctx context.Context, name string) (func() bool, error) {
	session, _, err := s.lock(ctx, name)
	return func() bool {
		select {
		case <-session.Done():
			return true
		default:
			return false
		}
	}, err
}

func (s *stockEtcd) Close() error { return s.client.Close() }

// etcdWork asks the server how many messages it has got: requests, and what comes
// by streams.
func etcdWork(ctx context.Context, addr string) (calls, scripts int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	lines, found := bufio.NewScanner(resp.Body), false
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "grpc_server_msg_received_total{") {
			continue
		}
		n, err := strconv.ParseFloat(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], 64)
		if err != nil {
			return 0, 0, err
		}
		calls, found = calls+int64(n), true
	}
	if err := lines.Err(); err != nil {
		return 0, 0, err
	}
	if !found {
		return 0, 0, fmt.Errorf("%s has no count of calls", req.URL)
	}
	return calls, 0, nil
}
