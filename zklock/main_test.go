package zklock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestMain(m *testing.M) {
	if testserver.Soak {
		goleak.VerifyTestMain(m)
	}
	testserver.Main(m)
}
