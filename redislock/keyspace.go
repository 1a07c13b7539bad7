package redislock

import (
	"context"
	"fmt"
	"strings"
)

// KeyspaceParameter is the parameter of the server that says of which keyspace notifications it tells.
const KeyspaceParameter = "notify-keyspace-events"

// TellsOfKeys reports whether a value of KeyspaceParameter is enough for waiters of the layout SetNX: the
// channels of keys tell of commands that delete, and of expiry.
func TellsOfKeys(value string) bool {
	has := func(flags string) bool { return strings.Contains(value, flags) }
	return has("K") && (has("A") || has("g") && has("x"))
}

// freeing are the events after which a key may be gone.
var freeing = map[string]bool{"del": true, "expired": true, "evicted": true, "rename_from": true, "move_from": true}

// newKeyspace returns nil if the server does not tell, or does not say whether it does, and if the Conn
// cannot listen.
func (c *client) newKeyspace(ctx context.Context) *wakeups {
	l, ok := c.conn.(Listener)
	if !ok {
		return nil
	}
	db, known := l.Database()
	if !known || !c.tells(ctx) {
		return nil
	}
	channel := fmt.Sprintf("__keyspace@%d__:", db)
	w := newWakeups(l.Listen, func(name string) []string { return []string{channel + name} })
	w.ask, w.frees = c.tells, func(message string) bool { return freeing[message] }
	return w
}

// tells asks the server whether it tells. A user that may not ask it hears nothing.
func (c *client) tells(ctx context.Context) bool {
	reply := c.shared.do(ctx, []Command{{Args: []string{"CONFIG", "GET", KeyspaceParameter}}})[0]
	switch v := reply.Value.(type) { // libraries differ in maps
	case map[string]any:
		value, _ := v[KeyspaceParameter].(string)
		return TellsOfKeys(value)
	case map[any]any:
		value, _ := v[KeyspaceParameter].(string)
		return TellsOfKeys(value)
	case []any: // by the older protocol
		return str(v, 0) == KeyspaceParameter && TellsOfKeys(str(v, 1))
	}
	return false
}
