//go:build !soak

package mysqlconn

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }
