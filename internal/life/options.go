package life

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// The longest TTL, with its lock-delay, that drivers take if none is set, and the longest that may be set: its sum with a
// clock, in microseconds, stays below 2^53.
const (
	UsualTTL = 30 * time.Second
	Bound    = 10 * 365 * 24 * time.Hour
)

// Params reads the parameters hf.maxttl and hf.forget of a store URL.
func Params(params map[string]string) (maxTTL time.Duration, forget bool, err error) {
	if text := params["hf.maxttl"]; text != "" {
		if maxTTL, err = time.ParseDuration(text); err != nil || maxTTL <= 0 {
			return 0, false, fmt.Errorf("hf.maxttl %.40q is not a duration such as 30s", text)
		}
	}
	text := params["hf.forget"]
	if text != "" && text != "wait" && text != "go" {
		return 0, false, fmt.Errorf("hf.forget %.40q: wait and go are known", text)
	}
	return maxTTL, text == "go", nil
}

// Check checks a longest TTL, 0 if none is set. Off says that the driver does not keep the rule.
func Check(maxTTL time.Duration, off bool) error {
	switch {
	case maxTTL < 0 || maxTTL > Bound || maxTTL > 0 && maxTTL < time.Millisecond:
		return fmt.Errorf("longest TTL %v: %v to %v is allowed", maxTTL, time.Millisecond, Bound)
	case maxTTL != 0 && off:
		return errors.New("a longest TTL is for stores that wait when they may have forgotten holds: leave it (hf.maxttl) out with " +
			"hf.forget=go, with the layout redisson, and in SQLite")
	}
	return nil
}

// Fits returns an error if a hold may outlast what a store may forget. The zero Rules fit all.
func (r Rules) Fits(req *driver.Request) error {
	if r.MaxTTL > 0 && req.TTL+req.LockDelay > r.MaxTTL {
		return fmt.Errorf("%w: the TTL and the lock-delay are %v together, and the longest is %v, because so long nobody gets a "+
			"lock after a fail-over: set hf.maxttl to more, in all clients", driver.ErrUnsupported, req.TTL+req.LockDelay, r.MaxTTL)
	}
	return nil
}
