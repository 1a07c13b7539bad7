//go:build !soak

package redislock

import (
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }
