package sentinel

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// TestLearn: the highest epoch counts, also against a majority that does not know it yet. If nobody
// knows it any more for a while, an older one does.
func TestLearn(t *testing.T) {
	t.Parallel()
	l := New(Options{Dialed: new(wire.Dialed)})
	defer l.Close()
	for _, step := range []struct {
		says view
		want string
	}{
		{view{"a:1", 3}, "a:1"}, {view{"b:1", 4}, "b:1"}, {view{"a:1", 3}, "b:1"}, {view{"c:1", 4}, "c:1"},
	} {
		if got := l.learn(step.says); got != step.want {
			t.Errorf("after %+v the primary is %s, not %s", step.says, got, step.want)
		}
	}
	l.mu.Lock()
	l.heard = time.Now().Add(-2 * forget)
	l.mu.Unlock()
	if got := l.learn(view{"d:1", 0}); got != "d:1" {
		t.Errorf("when the sentinels have been set up anew the primary is %s", got)
	}
}

// TestUnderstand: what is no address of a primary is refused.
func TestUnderstand(t *testing.T) {
	t.Parallel()
	p, primary := &peer{address: "s:1"}, "main"
	reply := func(fields ...any) wire.Reply { return wire.Reply{Value: fields} }
	none := wire.Reply{Err: &wire.ServerError{Text: "NOPERM this user has no permissions"}}
	whole := reply("name", "main", "ip", "::1", "port", "7000", "config-epoch", "12")
	for _, c := range []struct {
		address wire.Reply
		want    view
	}{{none, view{"[::1]:7000", 12}}, {reply("10.0.0.1", "7001"), view{"10.0.0.1:7001", 12}}} {
		if v, err := p.understand(primary, whole, c.address); err != nil || v != c.want {
			t.Errorf("%+v, %v; want %+v", v, err, c.want)
		}
	}
	for _, address := range []wire.Reply{reply("h", "0"), reply("", "1"), reply("h", int64(7))} {
		if v, err := p.understand(primary, whole, address); err == nil {
			t.Errorf("%+v was taken for the primary %+v", address, v)
		}
	}
	for _, r := range []wire.Reply{
		reply(), {Value: "OK"}, {}, reply("ip", "h", "port", "7000"), reply("ip", "h", "port", "0", "config-epoch", "1"),
		reply("ip", "h", "port", "65536", "config-epoch", "1"), reply("ip", "", "port", "1", "config-epoch", "1"),
		reply("ip", "h", "port", "x", "config-epoch", "1"), reply("ip", "h", "port", "1", "config-epoch", "-1"),
		reply("ip", "h", "port", int64(1), "config-epoch", "1"), {Err: errors.New("cut")},
	} {
		if v, err := p.understand(primary, r, none); err == nil {
			t.Errorf("%+v was taken for the primary %+v", r, v)
		}
	}
}
