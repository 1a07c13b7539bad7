// Package holdnumber numbers holds of stores that give no tokens, so that operators can name one of them to
// break it.
package holdnumber

import (
	"hash/fnv"

	"github.com/holdfastlock/holdfast/driver"
)

// Of returns the number of an owner's hold. It is the same in every process, from 1 to 2^53-1, and says
// nothing about the order of holds.
func Of(owner string) driver.Token {
	sum := fnv.New64a()
	sum.Write([]byte(owner))
	return driver.Token(sum.Sum64()>>11 | 1)
}
