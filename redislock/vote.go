package redislock

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// Raise implements vote.Raiser.
func (c *client) Raise(ctx context.Context, grants []driver.Grant) []driver.Renewal {
	return c.renew(ctx, grants, func(g *driver.Grant) (driver.Token, bool) { return g.Token, true })
}

// durable are the settings by which a server syncs each write to its disk before it answers.
var durable = [...][2]string{{"appendonly", "yes"}, {"appendfsync", "always"}}

// Durable implements vote.Keeper. A server that does not tell its settings, or not to this user, is believed.
func (c *link) Durable(ctx context.Context) (bool, error) {
	var commands []Command
	for _, setting := range durable {
		commands = append(commands, Command{Args: []string{"CONFIG", "GET", setting[0]}})
	}
	for i, reply := range c.shared.do(ctx, commands) {
		if reply.Err != nil && !isRefusal(reply.Err) {
			return false, reply.Err
		}
		told := fmt.Sprint(reply.Value) // a list of the name and the value, or a map
		if strings.Contains(told, durable[i][0]) && !strings.Contains(told, durable[i][1]) {
			return false, nil
		}
	}
	return true, nil
}
