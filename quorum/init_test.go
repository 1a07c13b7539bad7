package quorum_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/wrap"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// inspected is a voter whose holds can be shown.
type inspected struct{ *voter }

func (i inspected) Inspect(ctx context.Context, name string) (driver.Info, error) {
	return wrap.Forward{Driver: i.voter.Driver}.Inspect(ctx, name)
}

func (i inspected) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return wrap.Forward{Driver: i.voter.Driver}.List(ctx, prefix)
}

// TestInitInUse: P1: nodes of which one shows a hold are not said to be new. When it is released, they are.
func TestInitInUse(t *testing.T) {
	var nodes []driver.Driver
	for range 3 {
		v := &voter{Driver: memlock.NewStore(nil).Client()}
		v.life.Store(1)
		nodes = append(nodes, inspected{v})
	}
	d, err := quorum.New(nodes, &quorum.Options{NodeTimeout: bound})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	g, err := nodes[1].Try(t.Context(), driver.Request{Name: "orders/42", Owner: "a", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := quorum.Init(t.Context(), d); err == nil || !strings.Contains(err.Error(), `"orders/42" is held`) {
		t.Errorf("Init of nodes in use: %v", err)
	}
	if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "b", TTL: time.Second}); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("after an Init that was refused the nodes count: %v", err)
	}
	if err := nodes[1].Release(t.Context(), []driver.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	// The votes of the attempt are being taken back.
	for end := time.Now().Add(bound); ; time.Sleep(time.Millisecond) {
		if err = quorum.Init(t.Context(), d); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("Init of nodes that are free: %v", err)
		}
	}
	if _, err := d.Try(t.Context(), driver.Request{Name: "x", Owner: "c", TTL: time.Second}); err != nil {
		t.Errorf("after Init: %v", err)
	}
}

func (i inspected) Break(ctx context.Context, name string, t driver.Token) error {
	return wrap.Forward{Driver: i.voter.Driver}.Break(ctx, name, t)
}
