//go:build soak

package server

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// lagging is a store before whose next read something happens, of which the mirror learns later.
type lagging struct {
	store
	next atomic.Pointer[func()]
}

func (l *lagging) read() {
	if first := l.next.Swap(nil); first != nil {
		(*first)()
	}
}

// Range implements store.
func (l *lagging) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	l.read()
	return l.store.Range(ctx, r)
}

// Reached implements store.
func (l *lagging) Reached(ctx context.Context) (int64, error) {
	l.read()
	return l.store.Reached(ctx)
}

// TestLaggingRights: rights count as they are when a call is done, and not as its member knew them when it came.
// A right is taken away and a secret written, at another member: a reader at this one does not see the secret.
func TestLaggingRights(t *testing.T) {
	p := newPeople(t)
	admin, user := p.add(t, "admin", grant{"", toAdminister}), p.add(t, "user", grant{"a", toAdminister})
	m := startWith(t, func(c *Config) { c.Principals = p.file })
	store := &lagging{store: m.front.store}
	m.front.store = store
	root, a := dialAs(http.DefaultClient, "http://"+m.Addr(), admin), dialAs(http.DefaultClient, "http://"+m.Addr(), user)
	root.mustWrite(t, "acl/none", "")
	elsewhere := newAsFront(t, m, nil) // this member waits for its read, and for what happens before it
	may := func(list string) {
		_, err := files{elsewhere.front}.SetACL(elsewhere.ctx, &cellv1.SetACLRequest{
			Path: "a", Acl: &cellv1.ACL{Read: list, Write: list, Change: list},
		})
		if err != nil {
			t.Error(err)
		}
	}
	write := func(text string) {
		_, err := files{elsewhere.front}.Put(elsewhere.ctx, &cellv1.PutRequest{Path: "a", Contents: []byte(text)})
		if err != nil {
			t.Error(err)
		}
	}
	session, own := a.open(t, 30*time.Second), root.open(t, 30*time.Second)
	hold := root.take(t, own, "a", nil)
	for name, call := range map[string]func() error{
		"get": func() error { _, _, err := a.read(t, "a"); return err },
		"stat": func() error {
			_, err := a.files.Stat(t.Context(), &cellv1.StatRequest{Path: "a"})
			return err
		},
		"put": func() error { _, err := a.write(t, "a", "theirs", nil); return err },
		"list": func() error {
			_, err := a.files.ReadDir(t.Context(), &cellv1.ReadDirRequest{Path: "a"})
			return err
		},
		"rights": func() error {
			_, err := a.files.SetACL(t.Context(), &cellv1.SetACLRequest{Path: "a", Acl: &cellv1.ACL{}})
			return err
		},
		"watch": func() error {
			_, err := a.files.Watch(t.Context(), &cellv1.FilesWatchRequest{
				Session: session, Path: "a", Kinds: []cellv1.NodeEventKind{cellv1.NodeEventKind_NODE_EVENT_KIND_ADDED},
			})
			return err
		},
		"delete": func() error {
			_, err := a.files.Delete(t.Context(), &cellv1.DeleteRequest{Path: "a"})
			return err
		},
		"inspect": func() error {
			_, err := a.Inspect(t.Context(), &cellv1.InspectRequest{Name: "a"})
			return err
		},
		"check a sequencer": func() error {
			_, err := a.CheckSequencer(t.Context(), &cellv1.CheckSequencerRequest{Sequencer: hold.Sequencer})
			return err
		},
		"break": func() error {
			_, err := a.Break(t.Context(), &cellv1.BreakRequest{Name: "a", Token: hold.Token + 1})
			if reasonOf(err) == cellv1.Reason_REASON_NOT_HELD {
				return nil
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			write("public")
			may("")
			taken := func() { may("none"); write("secret") }
			store.next.Store(&taken)
			if err := call(); reasonOf(err) != cellv1.Reason_REASON_FORBIDDEN {
				t.Errorf("after the right was taken away: %v", err)
			}
			store.next.Store(nil)
			may("none")
			given := func() { may("") }
			store.next.Store(&given)
			if err := call(); err != nil {
				t.Errorf("after the right was given: %v", err)
			}
			store.next.Store(nil)
		})
	}
}
