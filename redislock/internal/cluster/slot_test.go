package cluster

import (
	"strconv"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestSlotOf compares the slots of keys with those that a server gives them.
func TestSlotOf(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
	for _, key := range []string{
		"", "123456789", "a", "{}", "{}a", "a{}b", "a}b{c", "{}a{b}", "{a}", "x{a}y{b}z", "{a", "a}", "{{a}}", "{a}}", "holdfast:{orders/42}:queue", "käse{é}",
	} {
		if got := server.Ask("CLUSTER", "KEYSLOT", key); got != strconv.Itoa(slotOf(key)) {
			t.Errorf("slot %d of %q, the server says %s", slotOf(key), key, got)
		}
	}
}
