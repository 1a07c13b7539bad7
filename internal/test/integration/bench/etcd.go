package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	_ "github.com/holdfastlock/holdfast/etcdlock"
)

var etcdStore = store{
	name: "etcd", title: "etcd", floor: "raw clientv3", work: etcdWork,
	url: func(addr string) string { return "etcd://" + addr },
	peers: []peer{
		{name: "raw clientv3", can: pairs, open: openRawEtcd},
		{name: bareEtcdName, can: crowd, open: openBareEtcd},
		{name: "concurrency.Mutex", can: all, open: openStockEtcd},
	},
}

func newEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// leasedEtcd makes a client and a lease that outlasts the measurement.
func leasedEtcd(ctx context.Context, addr string) (*clientv3.Client, clientv3.LeaseID, error) {
	client, err := newEtcd(addr)
	if err != nil {
		return nil, 0, err
	}
	lease, err := client.Grant(ctx, 600)
	if err != nil {
		return nil, 0, err
	}
	return client, lease.ID, nil
}

// openRawEtcd is one transaction and one delete, on one lease: the floor.
func openRawEtcd(ctx context.Context, addr string) (locker, error) {
	client, lease, err := leasedEtcd(ctx, addr)
	return func(ctx context.Context, name string) (hold, error) {
		_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
			Then(clientv3.OpPut(name, owner, clientv3.WithLease(lease))).Commit()
		return hold{release: func() error { _, err := client.Delete(ctx, name); return err }}, err
	}, err
}

// openStockEtcd is etcd's own Mutex. Two goroutines with one session do not exclude each other,
// so each has a session of its own while it waits for a lock or holds it; sessions are used again.
func openStockEtcd(_ context.Context, addr string) (locker, error) {
	client, err := newEtcd(addr)
	var mu sync.Mutex
	var idle []*concurrency.Session
	session := func() (*concurrency.Session, error) {
		mu.Lock()
		if n := len(idle); n > 0 {
			defer mu.Unlock()
			s := idle[n-1]
			idle = idle[:n-1]
			return s, nil
		}
		mu.Unlock()
		return concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
	}
	// Names that are kept are different ones, and share one session, which is best for this peer.
	kept := sync.OnceValues(session)
	return func(ctx context.Context, name string) (hold, error) {
		take := session
		if strings.HasPrefix(name, keptPrefix) {
			take = kept
		}
		s, err := take()
		if err != nil {
			return hold{}, err
		}
		m := concurrency.NewMutex(s, name)
		return hold{func() error {
			err := m.Unlock(context.Background())
			mu.Lock()
			defer mu.Unlock()
			idle = append(idle, s)
			return err
		}, func() bool {
			select {
			case <-s.Done():
				return true
			default:
				return m.Key() == "" // never true: it keeps the Mutex alive as long as the hold
			}
		}}, m.Lock(ctx)
	}, err
}

// etcdWork asks the server how many messages it has received, by requests and by streams; of a cell
// also its calls.
func etcdWork(ctx context.Context, addr string) (s served, err error) {
	addr, _, _ = strings.Cut(addr, ";")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return s, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, figure, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "grpc_server_msg_received_total{") || strings.HasPrefix(name, "holdfast_cell_calls_total{") {
			n, _ := strconv.ParseFloat(figure, 64)
			s.commands += int64(n)
		}
	}
	if s.commands == 0 {
		err = fmt.Errorf("%s has no count of calls", addr)
	}
	return s, err
}

// bareEtcdName is the least that grants a name in order: put a key, wait until the key before it
// is deleted, delete the key. It never checks again and has no token, so it is wrong as soon
// as a waiter gives up or dies. No lock that puts and deletes a key for each hold is faster.
const bareEtcdName = "bare put, watch and delete"

var bareEtcds atomic.Int64

// openBareEtcd opens such a client, which one goroutine uses.
func openBareEtcd(ctx context.Context, addr string) (locker, error) {
	client, lease, err := leasedEtcd(ctx, addr)
	if err != nil {
		return nil, err
	}
	me := fmt.Sprintf("/%d-%d", lease, bareEtcds.Add(1))
	ahead := map[string]*predecessor{}
	return func(ctx context.Context, name string) (hold, error) {
		r, err := client.Txn(ctx).Then(
			clientv3.OpPut(name+me, owner, clientv3.WithLease(lease)),
			clientv3.OpGet(name+"/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
				clientv3.WithLimit(2), clientv3.WithKeysOnly()),
		).Commit()
		if err != nil {
			return hold{}, err
		}
		if kvs := r.Responses[1].GetResponseRange().Kvs; len(kvs) == 2 {
			key := string(kvs[1].Key)
			if ahead[key] == nil {
				if ahead[key], err = precede(ctx, client, key); err != nil {
					return hold{}, err
				}
			}
			err = ahead[key].outlast(ctx, kvs[1].CreateRevision)
		}
		return hold{release: func() error { _, err := client.Delete(context.Background(), name+me); return err }}, err
	}, nil
}

// predecessor is a key that was once before this client's, and has been watched since then: in
// a steady queue it is the same each time.
type predecessor struct {
	gone   atomic.Int64 // the revision up to which the key is known to be deleted
	notice chan struct{}
}

func precede(ctx context.Context, client *clientv3.Client, key string) (*predecessor, error) {
	p := &predecessor{notice: make(chan struct{}, 1)}
	events := client.Watch(ctx, key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	<-events // it has begun
	go func() {
		for r := range events {
			for _, e := range r.Events {
				p.gone.Store(e.Kv.ModRevision)
			}
			select {
			case p.notice <- struct{}{}:
			default:
			}
		}
	}()
	r, err := client.Get(ctx, key)
	if err == nil && len(r.Kvs) == 0 {
		p.gone.Store(r.Header.Revision) // deleted before the watch began
	}
	return p, err
}

// outlast waits until the key that was created at a revision is deleted.
func (p *predecessor) outlast(ctx context.Context, created int64) error {
	for p.gone.Load() < created {
		select {
		case <-p.notice:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
