package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
		{name: "concurrency.Mutex", can: all, open: openStockEtcd},
	},
}

func newEtcd(addr string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
}

// openRawEtcd is one transaction and one delete, on one lease that outlasts the measurement: the floor.
func openRawEtcd(ctx context.Context, addr string) (locker, error) {
	client, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	lease, err := client.Grant(ctx, 600)
	return func(ctx context.Context, name string) (hold, error) {
		_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(name), "=", 0)).
			Then(clientv3.OpPut(name, owner, clientv3.WithLease(lease.ID))).Commit()
		return hold{release: func() error { _, err := client.Delete(ctx, name); return err }}, err
	}, err
}

// openStockEtcd is etcd's own Mutex. Two goroutines with one session do not exclude each other,
// so each has a session of its own while it waits for a lock or holds it; sessions are used again.
func openStockEtcd(_ context.Context, addr string) (locker, error) {
	client, err := newEtcd(addr)
	idle := make(chan *concurrency.Session, 1024)
	session := func() (*concurrency.Session, error) {
		select {
		case s := <-idle:
			return s, nil
		default:
			return concurrency.NewSession(client, concurrency.WithTTL(int(ttl.Seconds())))
		}
	}
	return func(ctx context.Context, name string) (hold, error) {
		s, err := session()
		if err != nil {
			return hold{}, err
		}
		m := concurrency.NewMutex(s, name)
		return hold{release: func() error {
			err := m.Unlock(context.Background())
			idle <- s
			return err
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
