package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestKeptAliveOnce: the answer to a request whose asker has gone is not taken for that of a later request
// for the same lease, which would be trusted for too long (P1).
func TestKeptAliveOnce(t *testing.T) {
	st := &keepAlives{cancel: func() {}, pending: make(chan struct{}, 1), made: time.Now()}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if kept := st.ask(gone, 1, time.Hour); !errors.Is(kept.err, context.Canceled) {
		t.Errorf("an asker that has gone got %+v", kept)
	}
	got := make(chan keptAlive)
	go func() { got <- st.ask(t.Context(), 1, time.Hour) }()
	for asked := 0; asked < 2; {
		st.mu.Lock()
		asked = len(st.asked)
		st.mu.Unlock()
	}
	for _, ttl := range []int64{7, 8} {
		if err := st.heardOf(&etcdserverpb.LeaseKeepAliveResponse{ID: 1, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
	}
	if kept := <-got; kept.err != nil || kept.ttl != 8 {
		t.Errorf("the second request got %+v, not its own answer", kept)
	}
	if st.heardOf(&etcdserverpb.LeaseKeepAliveResponse{ID: 1, TTL: 9}) == nil {
		t.Error("an answer that nobody asked for was taken")
	}
}
