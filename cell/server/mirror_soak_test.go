//go:build soak

package server

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/etcdlock/table"
)

// TestMirrorFollows: a mirror that has followed each change shows what one shows that reads all anew.
func TestMirrorFollows(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		k, m := newKeys(), newMirror(driver.HostClock, &guard{})
		m.load(k.all(), k.rev)
		var ids []string
		for i := range 12 {
			ids = append(ids, fmt.Sprintf("%x", 1<<62+2+2*i))
		}
		names := []string{"a", "a/b", "c"}
		for step := range 150 {
			k.rev++
			events := randomChange(r, k, ids, names)
			if len(events) == 0 {
				continue
			}
			if r.IntN(40) == 0 {
				m.load(k.all(), k.rev) // as after a watch that was cut
			} else {
				m.apply(events)
			}
			fresh := newMirror(driver.HostClock, &guard{})
			fresh.load(k.all(), k.rev)
			if got, want := m.shown(), fresh.shown(); got != want || strings.Contains(got, "WRONG") {
				t.Fatalf("seed %d, step %d: the mirror shows\n%s\nafter a load it shows\n%s", seed, step, got, want)
			}
		}
	}
}

// randomChange changes one thing.
func randomChange(r *rand.Rand, k *keys, ids, names []string) []*clientv3.Event {
	id := ids[r.IntN(len(ids))]
	name := names[r.IntN(len(names))]
	key := layout.Key(name, id, int32(r.IntN(3)))
	owner := ownerOf(id, fmt.Sprint(r.IntN(5)))
	there := k.kvs[key] != nil
	switch n := r.IntN(10); {
	case n == 0 && k.kvs[sessionsAt+id] == nil && !k.ended[id]:
		return []*clientv3.Event{k.put(sessionsAt+id, `{"secret":"x","ttl_ms":1000,"principal":"p"}`)}
	case n == 1 && k.kvs[sessionsAt+id] != nil: // the session ends, and what it has is removed later
		k.ended[id] = true
		return []*clientv3.Event{k.delete(sessionsAt + id)}
	case n == 2:
		return []*clientv3.Event{k.put(tombstoneOf(name, owner), []string{"", brokenText}[r.IntN(2)])}
	case n == 3 && k.kvs[tombstoneOf(name, owner)] != nil:
		return []*clientv3.Event{k.delete(tombstoneOf(name, owner))}
	case n < 6 && there:
		return []*clientv3.Event{k.delete(key)}
	case n < 8 && there:
		v, _ := table.ParseValue(k.kvs[key].Value)
		if v.Place = false; n == 7 || v.Closed {
			v.Owner, v.Closed, v.Principal = "", true, "p" // it closes its name from now on
		}
		return []*clientv3.Event{k.put(key, v.String())}
	case there || k.kvs[sessionsAt+id] == nil:
		return nil
	}
	req := driver.Request{Owner: owner, Mode: driver.Mode(r.IntN(3))}
	if req.Mode == driver.Slot {
		req.Slots, req.Permits = 3, 1+r.IntN(3)
	}
	v := layout.NewValue(&req, id, 0)
	v.Place = r.IntN(2) == 0
	return []*clientv3.Event{k.put(key, v.String())}
}
