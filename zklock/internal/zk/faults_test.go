package zk

// sent reports whether operations were written.
func sent(c *Calls) bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.sent != 0
}
