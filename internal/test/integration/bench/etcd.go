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
		name: "etcd", floor: "raw clientv3", bare: "bare put, watch and delete", ours: "holdfast", work: etcdWork,
		peers: []peer{
			{name: "raw clientv3", open: openRawEtcd, skips: notPairs},
			{name: "bare put, watch and delete", open: openBareEtcd,
				skips: []string{"pair", "pair64", "hot", "hot4", "handoff", "wait", "hold"}},
			{name: "holdfast", open: func(ctx context.Context, addr string) (Locker, error) { return openHoldfast(ctx, "etcd://"+addr) }},
			{name: "concurrency.Mutex", open: openStockEtcd},
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

// stockEtcd is etcd's own Mutex. Two goroutines with one session do not exclude each other,
// so each has a session of its own while it waits for a lock or holds it; sessions are used
// again. Holds on different names share one session, which is best for this peer.
type stockEtcd struct {
	client *clientv3.Client
	mu     sync.Mutex
	idle   []*concurrency.Session
	holds  func() (*concurrency.Session, error)
}

func openStockEtcd(_ context.Context, addr string) (Locker, error) {
	client, err := newEtcd(addr)
	return &stockEtcd{client: client, holds: sync.OnceValues(func() (*concurrency.Session, error) {
		return concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
	})}, err
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

func (s *stockEtcd) Lock(ctx context.Context, name string) (func() error, error) {
	session, err := s.session()
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(session, name)
	return func() error {
		err := m.Unlock(context.Background())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.idle = append(s.idle, session)
		return err
	}, m.Lock(ctx)
}

func (s *stockEtcd) Hold(ctx context.Context, name string) (func() bool, error) {
	session, err := s.holds()
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(session, name)
	return func() bool {
		select {
		case <-session.Done():
			return true
		default:
			return m.Key() == "" // never true: it keeps the Mutex alive as long as the hold
		}
	}, m.Lock(ctx)
}

func (s *stockEtcd) Close() error { return s.client.Close() }

// etcdWork asks the server how many messages it has received, by requests and by streams, and
// how much memory it uses.
func etcdWork(ctx context.Context, addr string) (served, error) {
	s, err := scrape(ctx, http.DefaultClient, "http://"+addr+"/metrics")
	if err == nil && (s.commands == 0 || s.memory == 0) {
		return served{}, fmt.Errorf("%s has no count of calls or no size", addr)
	}
	return s, err
}

// scrape reads what a server has done from its metrics: etcd's messages, and a cell's calls.
func scrape(ctx context.Context, client *http.Client, url string) (s served, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return served{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return served{}, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, figure, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseFloat(figure, 64)
		switch {
		case strings.HasPrefix(name, "grpc_server_msg_received_total{"), strings.HasPrefix(name, "holdfast_cell_calls_total{"):
			s.commands += int64(n)
		case name == "process_resident_memory_bytes":
			s.memory = int64(n)
		}
	}
	return s, nil
}
