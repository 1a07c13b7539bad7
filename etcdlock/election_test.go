//go:build soak

package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/election"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// office is one election, seen by both programs.
type office struct {
	*testing.T
	ours   *election.Election
	theirs *concurrency.Election
	seen   chan election.Leader // by our observer
	heard  chan string          // by theirs
}

func newOffice(t *testing.T, addrs, prefix, full string) *office {
	locks, err := holdfast.Open(t.Context(), "etcd://"+addrs+"/"+prefix+"?hf.layout=stock")
	if err != nil {
		t.Fatal(err)
	}
	etcd := dialClient(t, addrs)
	session, err := concurrency.NewSession(etcd)
	if err != nil {
		t.Fatal(err)
	}
	o := &office{
		T: t, ours: election.New(locks, "office", nil), theirs: concurrency.NewElection(session, full),
		seen: make(chan election.Leader, 100), heard: make(chan string, 100),
	}
	watching := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(watching)
		for l, err := range o.ours.Observe(ctx) {
			if err != nil {
				t.Errorf("observing: %v", err)
			}
			o.seen <- l
		}
	}()
	go func() {
		for resp := range o.theirs.Observe(ctx) {
			o.heard <- string(resp.Kvs[0].Value)
		}
	}()
	t.Cleanup(func() { cancel(); <-watching; session.Close(); etcd.Close(); locks.Close() })
	return o
}

// leads asserts that all of both programs see this leader.
func (o *office) leads(value string) {
	o.Helper()
	if l, err := o.ours.Leader(o.Context()); err != nil || l.Vacant || l.Value != value {
		o.Errorf("%q leads, our Leader shows %+v, %v", value, l, err)
	}
	if r, err := o.theirs.Leader(o.Context()); err != nil || string(r.Kvs[0].Value) != value {
		o.Errorf("%q leads, etcd's Leader shows %v, %v", value, r, err)
	}
	late := time.After(30 * time.Second)
	for ours, theirs := false, false; !ours || !theirs; {
		select {
		case l := <-o.seen:
			ours = ours || l.Value == value
		case v := <-o.heard:
			theirs = theirs || v == value
		case <-late:
			o.Fatalf("%q leads: seen by our observer %v, by etcd's %v", value, ours, theirs)
		}
	}
}

// TestElection: package election and etcd's own Election elect one leader between
// them, one after the other, and each sees the other's.
func TestElection(t *testing.T) {
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	for prefix, full := range map[string]string{"": "office", "team/a": "team/a/office"} {
		t.Run("under "+prefix, func(t *testing.T) { newOffice(t, server.Addrs(), prefix, full).elect() })
	}
}

func (o *office) elect() {
	if l, err := o.ours.Leader(o.Context()); err != nil || !l.Vacant {
		o.Errorf("nobody leads, our Leader shows %+v, %v", l, err)
	}
	if err := o.theirs.Campaign(o.Context(), "theirs"); err != nil {
		o.Fatal(err)
	}
	o.leads("theirs")
	if err := o.theirs.Proclaim(o.Context(), `{"theirs": 2}`); err != nil {
		o.Fatal(err)
	}
	o.leads(`{"theirs": 2}`)

	elected := make(chan *election.Leadership, 1)
	go func() {
		l, err := o.ours.Campaign(o.Context(), "ours")
		if err != nil {
			o.Error(err)
		}
		elected <- l
	}()
	o.refused(elected)
	if err := o.theirs.Resign(o.Context()); err != nil {
		o.Fatal(err)
	}
	l := <-elected
	o.leads("ours")
	if l.Token() == 0 {
		o.Error("P3: a leadership has no token")
	}
	short, cancel := context.WithTimeout(o.Context(), 100*time.Millisecond)
	defer cancel()
	if err := o.theirs.Campaign(short, "too early"); !errors.Is(err, context.DeadlineExceeded) {
		o.Errorf("P1: etcd's Election elected another beside ours: %v", err)
	}
	campaigned := make(chan error, 1)
	go func() { campaigned <- o.theirs.Campaign(o.Context(), "theirs, again") }()
	select {
	case err := <-campaigned:
		o.Errorf("P1: etcd's Election elected another beside ours: %v", err)
	case <-time.After(50 * time.Millisecond): // it must come to it early or late
	}
	if err := l.Resign(); err != nil {
		o.Error(err)
	}
	if err := <-campaigned; err != nil {
		o.Fatal(err)
	}
	o.leads("theirs, again")
	if err := o.theirs.Resign(o.Context()); err != nil {
		o.Error(err)
	}
	for l := range o.seen {
		if l.Vacant {
			break
		}
	}
}

// refused asserts that our campaign waits for etcd's leader.
func (o *office) refused(elected chan *election.Leadership) {
	o.Helper()
	select {
	case <-elected:
		o.Error("P1: our election elected another beside etcd's")
	case <-time.After(50 * time.Millisecond): // it must come to it early or late
	}
}
