package sqllock

import (
	"context"
	"database/sql"
)

// written is called when a decision has been written. A waiter may have taken a place between our read and
// our write. It did not touch the row, so our write did not fail. So written reads the queue again. If this
// client stops before that, the waiter's next question grants it what is free.
func (c *client) written(ctx context.Context, conn *sql.Conn, name string, d *decision) error {
	c.afterWrite(d.attempt)
	if d.recheck && c.recheck(ctx, conn, name) != nil {
		c.recheckLater(name) // the step is done, so its caller need not wait for that
	}
	return nil
}

// recheck grants the first places what is free.
func (c *client) recheck(ctx context.Context, conn *sql.Conn, name string) error {
	return c.change(ctx, conn, name, nil, look{heads: headPlaces}, func(*attempt) {})
}

// recheckLater repeats a recheck that has failed, on another connection: suppose the server has chosen it
// as the victim of a deadlock, or has ended its connection. Then nobody else looks until the waiter asks,
// which may take a poll (P7). After that time it need not go on.
func (c *client) recheckLater(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alive(context.Background()) != nil {
		return
	}
	c.working.Go(func() {
		ctx, cancel := context.WithTimeout(c.life, c.caps.PollInterval())
		defer cancel()
		for attempt := 0; ; attempt++ {
			_, err := c.request(ctx, releasing, func(ctx context.Context, conn *sql.Conn) error {
				return c.recheck(ctx, conn, name)
			})
			if err == nil || !c.pause(ctx, attempt) {
				return
			}
		}
	})
}
