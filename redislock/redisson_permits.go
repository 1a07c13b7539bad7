package redislock

import (
	_ "embed"

	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

//go:embed lua/redisson/permits.lua
var permitsLua string

//go:embed lua/redisson/permits_take.lua
var permitsTakeLua string

//go:embed lua/redisson/permits_renew.lua
var permitsRenewLua string

//go:embed lua/redisson/permits_release.lua
var permitsReleaseLua string

// permitWay is an RPermitExpirableSemaphore. Its permits end by the wall clock: each client takes those for ended of
// which the clock that it reads says so.
var permitWay = &way{
	take: redissonScript(permitsLua, permitsTakeLua), renew: redissonScript(permitsLua, permitsRenewLua), release: redissonScript(permitsLua, permitsReleaseLua),
	other:   func(name, _ string) string { return wire.PermitTimeouts(name) },
	channel: wire.SemaphoreChannel,
	holder:  func(req *driver.Request) string { return wire.PermitIDs(req.Owner, req.Permits) },
}
