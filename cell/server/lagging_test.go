//go:build soak

package server

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/types/known/durationpb"

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
		"watch a lock": func() error {
			_, err := a.LocksClient.Watch(t.Context(), &cellv1.WatchRequest{Name: "a"})
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

// TestRightsChangeInBetween: a right to a file is taken away right before the transaction of a call that was let in. The
// call writes nothing; and what it makes has the rights that are inherited by then.
func TestRightsChangeInBetween(t *testing.T) {
	f, second, before := fronts(t)
	user := context.WithValue(f.ctx, callerKey{}, &principal{name: "user", grants: []grant{{"a", toAdminister}}})
	write := func(ctx context.Context, path, contents string) (*cellv1.Node, error) {
		r, err := files{f.front}.Put(ctx, &cellv1.PutRequest{Path: path, Contents: []byte(contents)})
		if err != nil {
			return nil, err
		}
		return r.Node, nil
	}
	may := func(path, list string) {
		t.Helper()
		if _, err := (files{second.front}).SetACL(f.ctx, &cellv1.SetACLRequest{
			Path: path, Acl: &cellv1.ACL{Read: list, Write: list, Change: list},
		}); err != nil {
			t.Error(err)
		}
	}
	list := func(contents string) {
		t.Helper()
		if _, err := (files{second.front}).Put(f.ctx, &cellv1.PutRequest{Path: "acl/some", Contents: []byte(contents)}); err != nil {
			t.Error(err)
		}
	}
	for what, call := range map[string]func() error{
		"put":  func() error { _, err := write(user, "a/x", "theirs"); return err },
		"make": func() error { _, err := write(user, "a/x/y/z", "theirs"); return err },
		"delete": func() error {
			_, err := files{f.front}.Delete(user, &cellv1.DeleteRequest{Path: "a/x"})
			return err
		},
		"rights": func() error {
			_, err := files{f.front}.SetACL(user, &cellv1.SetACLRequest{Path: "a/x", Acl: &cellv1.ACL{}})
			return err
		},
	} {
		for how, take := range map[string]func(){
			"its rights are changed": func() { may("a/x", "none") },
			"a list is changed":      func() { list("somebody else") },
		} {
			t.Run(what+", "+how, func(t *testing.T) {
				list("user")
				for _, path := range []string{"a/x/y/z", "a/x"} { // each begins anew
					files{f.front}.Delete(f.ctx, &cellv1.DeleteRequest{Path: path})
				}
				if _, err := write(f.ctx, "a/x", ""); err != nil {
					t.Fatal(err)
				}
				may("a/x", "some")
				if err := f.sync(f.ctx); err != nil {
					t.Fatal(err)
				}
				before.before(take)
				if err := call(); reasonOf(err) != cellv1.Reason_REASON_FORBIDDEN {
					t.Errorf("after the right was taken away: %v", err)
				}
			})
		}
	}
	if _, err := write(f.ctx, strings.Repeat("a/", 255)+"a", ""); err != nil {
		t.Errorf("a node far below: %v", err)
	}
	may("a/x", "")
	before.before(func() { may("a/x", "some") })
	if n, err := write(f.ctx, "a/x/new", ""); err != nil || n.Acl.Write != "some" {
		t.Errorf("what was made after the rights were changed has the rights %v, %v", n.GetAcl(), err)
	}
}

// TestRightsToLocksChange: a right to a lock is given at another member right before a call, or taken away before its
// transaction, or while it waits.
func TestRightsToLocksChange(t *testing.T) {
	m, late, before := start(t), &lagging{}, (*hooked)(nil)
	f := newAsFront(t, m, func(s store) store { before = &hooked{store: s}; late.store = before; return late })
	second := newAsFront(t, m, nil)
	administers := f.ctx
	f.ctx = context.WithValue(administers, callerKey{}, &principal{name: "user", grants: []grant{{"a", toWrite}}})
	session, id := second.openAs(f.ctx)
	holder, _ := second.open()
	if _, err := (files{second.front}).Put(administers, &cellv1.PutRequest{Path: "a"}); err != nil {
		t.Fatal(err)
	}
	set := func(list string) {
		if _, err := (files{second.front}).SetACL(administers, &cellv1.SetACLRequest{
			Path: "a", Acl: &cellv1.ACL{Write: list},
		}); err != nil {
			t.Error(err)
		}
	}
	may := func(list string) {
		set(list)
		if err := f.sync(administers); err != nil {
			t.Error(err)
		}
	}
	may("none")
	given := func() { set("") }
	late.next.Store(&given)
	if _, err := f.acquire(session, "a/given", "r", nil); err != nil {
		t.Errorf("after the right was given: %v", err)
	}
	if _, err := second.acquire(holder, "a/held", "r", nil); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*cellv1.AcquireRequest){
		"a/free": nil,
		"a/held": func(m *cellv1.AcquireRequest) { m.Queue = true },
	} {
		may("")
		before.before(func() { set("none") })
		if r, err := f.acquire(session, name, "r", edit); reasonOf(err) != cellv1.Reason_REASON_FORBIDDEN {
			t.Errorf("%s, after the right was taken away: %v, %v", name, r, err)
		}
	}
	may("")
	answered := make(chan error, 1)
	go func() {
		_, err := f.acquire(session, "a/held", "waits", func(m *cellv1.AcquireRequest) { m.Wait = durationpb.New(time.Minute) })
		answered <- err
	}()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, places := second.has(id); places == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the request does not wait")
		}
	}
	may("none")
	second.release(holder, "a/held", "r")
	if err := <-answered; reasonOf(err) != cellv1.Reason_REASON_FORBIDDEN {
		t.Errorf("a right that was taken away while the call waits: %v", err)
	}
	second.expect(id, 1, 0, "P6: a call was refused")
}
