package redislock

import (
	"cmp"
	"context"
	_ "embed"

	"github.com/holdfastlock/holdfast/driver"
	wire "github.com/holdfastlock/holdfast/redislock/internal/redisson"
)

//go:embed lua/redisson/rw.lua
var rwLua string

//go:embed lua/redisson/read_take.lua
var readTakeLua string

//go:embed lua/redisson/read_renew.lua
var readRenewLua string

//go:embed lua/redisson/read_release.lua
var readReleaseLua string

//go:embed lua/redisson/write_take.lua
var writeTakeLua string

//go:embed lua/redisson/write_renew.lua
var writeRenewLua string

//go:embed lua/redisson/write_release.lua
var writeReleaseLua string

//go:embed lua/redisson/downgrade.lua
var redissonDowngradeLua string

// readWay and writeWay are the halves of an RReadWriteLock. A read hold has a key of its own, which lasts as
// long as the hold may: without it a reader in Java that releases would take the hold for ended, and delete
// the hash.
var (
	readWay = &way{
		take: redissonScript(rwLua, readTakeLua), renew: redissonScript(rwLua, readRenewLua), release: redissonScript(rwLua, readReleaseLua),
		other:   wire.ReadTimeout,
		channel: wire.ReadWriteChannel,
		holder:  func(req *driver.Request) string { return wire.Owner(req.Owner) },
		longest: longestTrust,
	}
	writeWay = &way{
		take: redissonScript(rwLua, writeTakeLua), renew: redissonScript(rwLua, writeRenewLua), release: redissonScript(rwLua, writeReleaseLua),
		other:   wire.ReadTimeout,
		channel: wire.ReadWriteChannel,
		holder:  writer,
		longest: longestTrust,
	}
	redissonDowngrade = redissonScript(rwLua, redissonDowngradeLua)
)

// writerSuffix ends the field of a writer.
const writerSuffix = ":write"

func writer(req *driver.Request) string { return wire.Owner(req.Owner) + writerSuffix }

// Downgrade implements driver.Downgrader, for the write half of a read-write lock. Redisson lets a thread do
// it in two steps: it takes the read half as well, and releases the write half. Waiting readers are told, which
// Redisson does not.
func (r redisson) Downgrade(ctx context.Context, g driver.Grant) (driver.Grant, error) {
	if r.mutex != lockWay || g.Mode == driver.Exclusive && !g.RW || g.Mode == driver.Slot {
		return driver.Grant{}, driver.ErrUnsupported
	}
	if err := cmp.Or(r.checkName(g.Name), r.c.alive(ctx)); err != nil {
		return driver.Grant{}, err
	}
	req := g.Request
	sent := r.c.clock.Now()
	command := redissonDowngrade.command(r.keys(readWay, &req), wire.Owner(g.Owner), writer(&req), millis(g.TTL), r.publish)
	reply := r.c.sharedAck.route(r.c.shared, g.TTL).run(ctx, redissonDowngrade, command)[0]
	if reply.Err != nil {
		return driver.Grant{}, Explain(reply.Err)
	}
	if err := cmp.Or(statusError(reply.Value), reply.short); err != nil {
		return driver.Grant{}, err
	}
	g.Mode, g.Since, g.Valid, g.Claim = driver.Shared, sent, readWay.trust(g.TTL), false
	return g, nil
}
