//go:build !soak

package zklock

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }
