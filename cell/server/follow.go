package server

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// follow keeps the mirror up to date until the member stops: it reads all, and watches from there on.
// If the watch ends, because this member was cut off for so long that etcd has forgotten what it
// missed, it begins anew.
func (f *front) follow(watcher clientv3.Watcher, loaded chan<- struct{}) {
	for f.life.Err() == nil {
		rev, err := f.loadMirror()
		if err == nil {
			if loaded != nil {
				close(loaded)
				loaded = nil
			}
			err = f.watch(watcher, rev)
		}
		if f.life.Err() == nil {
			f.log.Warn("what the cell has is read anew", "error", err)
			time.Sleep(retryEvery)
		}
	}
}

// pageSize is how many keys are read at once.
const pageSize = 1000

// loadMirror reads all keys as they are at one revision.
func (f *front) loadMirror() (rev int64, err error) {
	var all []*mvccpb.KeyValue
	for key := []byte{0}; ; {
		resp, err := f.store.Range(f.life, &etcdserverpb.RangeRequest{
			Key: key, RangeEnd: []byte{0}, Limit: pageSize, Revision: rev, Serializable: rev != 0,
		})
		if err != nil {
			return 0, err
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		all = append(all, resp.Kvs...)
		if !resp.More {
			f.mirror.load(all, rev)
			return rev, nil
		}
		key = append(append([]byte(nil), resp.Kvs[len(resp.Kvs)-1].Key...), 0)
	}
}

// watch takes in what happens after a revision. Each revision changes a key, so the last event tells
// how far the mirror has come.
func (f *front) watch(watcher clientv3.Watcher, rev int64) error {
	ctx, cancel := context.WithCancel(f.life)
	defer cancel()
	for resp := range watcher.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(rev+1)) {
		if err := resp.Err(); err != nil {
			return err
		}
		if len(resp.Events) == 0 {
			continue
		}
		events := make([]*mvccpb.Event, len(resp.Events))
		for i, e := range resp.Events {
			events[i] = (*mvccpb.Event)(e)
		}
		f.mirror.apply(events)
	}
	return ctx.Err()
}
