//go:build soak

package slot

import (
	"strconv"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestOf compares the slots of keys with those that a server gives them, and to keys with their tags.
func TestOf(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
	for _, key := range []string{
		"", "123456789", "a", "{}", "{}a", "a{}b", "a}b{c", "{}a{b}", "{a}", "x{a}y{b}z", "{a", "a}", "{{a}}", "{a}}", "holdfast:{orders/42}:queue", "käse{é}",
	} {
		want := strconv.Itoa(Of(key))
		if got := server.Ask("CLUSTER", "KEYSLOT", key); got != want {
			t.Errorf("slot %s of %q, the server says %s", want, key, got)
		}
		if got := server.Ask("CLUSTER", "KEYSLOT", "x:{"+TagLike(key)+"}:y"); got != want {
			t.Errorf("slot %s of %q, with its tag %q the server says %s", want, key, TagLike(key), got)
		}
	}
}
