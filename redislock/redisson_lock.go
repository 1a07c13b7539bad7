package redislock

import (
	_ "embed"

	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

//go:embed lua/redisson/lock_take.lua
var lockTakeLua string

//go:embed lua/redisson/lock_renew.lua
var lockRenewLua string

//go:embed lua/redisson/lock_release.lua
var lockReleaseLua string

//go:embed lua/redisson/fenced_take.lua
var fencedTakeLua string

//go:embed lua/redisson/fenced_break.lua
var fencedBreakLua string

var fencedBreak = redissonScript(fencedBreakLua)

// nameItself is the second key of a kind that needs none.
func nameItself(name, _ string) string { return name }

// lockWay is an RLock.
var lockWay = &way{
	take: redissonScript(lockTakeLua), renew: redissonScript(lockRenewLua), release: redissonScript(lockReleaseLua),
	other:   nameItself,
	channel: wire.LockChannel,
	holder:  func(req *driver.Request) string { return wire.Owner(req.Owner) },
}

// fencedWay is an RFencedLock: an RLock with a counter, of which each hold has the next number as its token.
var fencedWay = &way{
	take: redissonScript(fencedTakeLua), renew: lockWay.renew, release: lockWay.release,
	other:   func(name, _ string) string { return wire.Tokens(name) },
	channel: lockWay.channel,
	holder:  lockWay.holder,
}

// spinWay is an RSpinLock: an RLock whose waiters hear of nothing, and poll. Its release is told all the same, so
// that waiters of an RLock of that name are woken.
var spinWay = &way{
	take: lockWay.take, renew: lockWay.renew, release: lockWay.release,
	other: lockWay.other, channel: lockWay.channel, holder: lockWay.holder,
}
