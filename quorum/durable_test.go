package quorum_test

import (
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/memlock"
	"github.com/holdfastlock/holdfast/quorum"
)

// TestNotDurable: P1: a node that is said to be durable, and says that it is not, is refused.
func TestNotDurable(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		nodes := make([]driver.Driver, 3)
		for i := range nodes {
			nodes[i] = &voter{Driver: memlock.NewStore(nil).Client(), forgets: forgets && i == 2}
		}
		d, err := quorum.New(nodes, &quorum.Options{Durable: true})
		if err == nil {
			d.Close()
		}
		if refused := err != nil && strings.Contains(err.Error(), "said to be durable"); refused != forgets {
			t.Errorf("of a node that forgets: %v: %v", forgets, err)
		}
	}
}
