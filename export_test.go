package holdfast

// Idle reports whether the client's engine has forgotten everything (P9).
func (c *Client) Idle() bool { return c.core.Idle() }
