package holdfast

import (
	"github.com/holdfastlock/holdfast/internal/engine"
	"github.com/holdfastlock/holdfast/internal/explore/replay"
)

// Idle reports whether the client's engine has forgotten everything (P9).
func (c *Client) Idle() (idle bool) {
	c.core.Engine(func(e *engine.Engine) { idle = e.Idle() })
	return idle
}

// Record logs the steps of the client's engine, which has made none.
func (c *Client) Record() (log *replay.Log) {
	c.core.Engine(func(e *engine.Engine) { log = replay.Record(e) })
	return log
}
