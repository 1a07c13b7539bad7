//go:build soak && linux

package docstest

import (
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestManagedRedis runs all that locks can do on servers with the restrictions of the
// services.
func TestManagedRedis(t *testing.T) {
	for service, commands := range managedRedis {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			var args []string
			for command := range strings.FieldsSeq(commands) {
				args = append(args, "--rename-command", command, "")
			}
			server := testserver.StartRedis(t, testserver.RedisOptions{Args: args})
			exercise(t, "redis://"+server.Addr)
			r := newRunner(t)
			r.shell(service, "redis-cli -u redis://"+server.Addr+" save", "")
			if !strings.Contains(r.last, "unknown command") {
				t.Errorf("the server has no restrictions: %s", r.last)
			}
		})
	}
}
