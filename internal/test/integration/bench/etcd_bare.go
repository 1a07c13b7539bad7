package bench

import (
	"context"
	"fmt"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// bareEtcd is the least that grants a name in order: put a key, wait until the key before it
// is deleted, delete the key. It never checks again and has no token, so it is wrong as soon
// as a waiter gives up or dies. No lock that puts and deletes a key for each hold is faster.
// One goroutine uses it.
type bareEtcd struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
	me     int64
	ahead  map[string]*predecessor
}

// predecessor is a key that was once before this client's, and has been watched since then: in
// a steady queue it is the same each time.
type predecessor struct {
	gone   atomic.Int64 // the revision of its last deletion
	notice chan struct{}
}

var bareEtcds atomic.Int64

func openBareEtcd(ctx context.Context, addr string) (Locker, error) {
	client, err := newEtcd(addr)
	if err != nil {
		return nil, err
	}
	lease, err := client.Grant(ctx, 600)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &bareEtcd{client: client, lease: lease.ID, me: bareEtcds.Add(1),
		ahead: map[string]*predecessor{}}, nil
}

func (b *bareEtcd) Lock(ctx context.Context, name string) (func() error, error) {
	dir := name + "/"
	key := fmt.Sprintf("%s%d", dir, b.me)
	r, err := b.client.Txn(ctx).Then(
		clientv3.OpPut(key, "an owner of 26 characters.", clientv3.WithLease(b.lease)),
		clientv3.OpGet(dir, clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend),
			clientv3.WithLimit(2), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return nil, err
	}
	unlock := func() error { _, err := b.client.Delete(context.Background(), key); return err }
	if kvs := r.Responses[1].GetResponseRange().Kvs; len(kvs) == 2 {
		err = b.outlast(ctx, string(kvs[1].Key), kvs[1].CreateRevision)
	}
	return unlock, err
}

// outlast waits until the key that was created at a revision is deleted.
func (b *bareEtcd) outlast(ctx context.Context, key string, created int64) error {
	p := b.ahead[key]
	if p == nil {
		p = &predecessor{notice: make(chan struct{}, 1)}
		b.ahead[key] = p
		events := b.client.Watch(ctx, key, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
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
		r, err := b.client.Get(ctx, key)
		if err != nil || len(r.Kvs) == 0 || r.Kvs[0].CreateRevision != created {
			return err
		}
	}
	for p.gone.Load() < created {
		select {
		case <-p.notice:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *bareEtcd) Close() error { return b.client.Close() }
