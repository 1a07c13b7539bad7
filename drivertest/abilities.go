package drivertest

import (
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// abilities are what a driver can do beyond the core: a bit for each optional interface.
type abilities uint

const (
	opQueue abilities = 1 << iota
	opNotify
	opShard
	opOperator
	opDowngrade
	opWatch
	opRaise
)

func abilitiesOf(d driver.Driver) (can abilities) {
	n, notifies := driver.As[driver.Notifier](d)
	for ability, has := range map[abilities]bool{
		opQueue: is[driver.Queuer](d), opNotify: notifies && n.Losses() != nil, opShard: is[driver.Sharder](d),
		opOperator: is[driver.Operator](d), opDowngrade: is[driver.Downgrader](d), opWatch: is[driver.Watcher](d),
		opRaise: is[vote.Raiser](d),
	} {
		if has {
			can |= ability
		}
	}
	return can
}

func is[T any](d driver.Driver) bool {
	_, ok := driver.As[T](d)
	return ok
}

// needs is what a case needs of a driver.
type needs struct {
	can                          abilities
	Fencing, Shared, Slots, Fair bool
	TokenBlock                   int
}
