package holdfast_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast"
)

// TestLeaseString: a lease prints as what it is, with every verb, and never shows its owner, by which
// the hold could be released.
func TestLeaseString(t *testing.T) {
	inWorld(t, func(w *world) {
		c, _ := w.client(nil)
		lease, err := c.Mutex("a b", nil).Acquire(w.ctx)
		if err != nil {
			w.Fatal(err)
		}
		info, err := c.Inspect(w.ctx, "a b")
		if err != nil || len(info.Holders) != 1 {
			w.Fatal(info, err)
		}
		start := fmt.Sprintf("lease on %q, token %d: trusted for ", "a b", lease.Token())
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
			text := fmt.Sprintf(verb, lease)
			if !strings.HasPrefix(text, start) || strings.Contains(text, info.Holders[0].Owner) {
				w.Errorf("%s: %s", verb, text)
			}
		}
		if text := fmt.Sprintf("%q", lease); !strings.HasPrefix(text, `"lease on \"a b\", token `) {
			w.Error(text)
		}
		if err := lease.Release(); err != nil {
			w.Fatal(err)
		}
		if text := lease.String(); !strings.Contains(text, strings.TrimPrefix(holdfast.ErrReleased.Error(), "holdfast: ")) {
			w.Errorf("after the release: %s", text)
		}
	})
}
