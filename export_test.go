package holdfast

import "github.com/holdfastlock/holdfast/internal/explore/replay"

// Idle reports whether the client's engine has forgotten everything (P9).
func (c *Client) Idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.engine.Idle()
}

// Record logs the steps of the client's engine, which has made none.
func (c *Client) Record() *replay.Log { return replay.Record(c.engine) }
