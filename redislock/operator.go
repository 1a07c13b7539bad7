package redislock

import (
	"context"
	"iter"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// Inspect implements driver.Operator.
func (c *client) Inspect(ctx context.Context, name string) (driver.Info, error) {
	return one(c.inspect(ctx, name))
}

func one(infos []driver.Info, err error) (driver.Info, error) {
	if err != nil {
		return driver.Info{}, err
	}
	return infos[0], nil
}

func (c *client) inspect(ctx context.Context, names ...string) ([]driver.Info, error) {
	return c.look(ctx, inspectScript, names, c.layout.keys, readInfo)
}

// look runs a script that shows names, of which keys are the keys. Read reads a reply, and reports whether it is one.
func (c *link) look(
	ctx context.Context, by *script, names []string, keys func(string) []string, read func(*driver.Info, []any) bool,
) ([]driver.Info, error) {
	commands := make([]Command, len(names))
	for i, name := range names {
		commands[i] = c.command(by, keys(name))
	}
	infos := make([]driver.Info, len(names))
	for i, reply := range c.shared.run(ctx, by, commands...) {
		fields, _ := reply.Value.([]any)
		infos[i].Name = names[i]
		switch {
		case reply.Err != nil:
			return nil, Explain(reply.Err)
		case !read(&infos[i], fields):
			return nil, errUnexpected(reply.Value)
		}
	}
	return infos, nil
}

// readInfo reads a reply of inspect.lua.
func readInfo(info *driver.Info, fields []any) bool {
	info.Slots, info.ClosedFor = int(number(fields, 0)), duration(number(fields, 1))
	for _, item := range list(fields, 2) {
		h, _ := item.([]any)
		info.Holders = append(info.Holders, driver.Holder{
			Owner: unescape(str(h, 0)), Mode: driver.Mode(number(h, 1)), Permits: int(number(h, 2)), Note: str(h, 3),
			Token: driver.Token(number(h, 4)), Held: duration(number(h, 5)), Expires: duration(number(h, 6)),
		})
	}
	for _, item := range list(fields, 3) {
		p, _ := item.([]any)
		info.Waiters = append(info.Waiters, driver.Waiter{
			Owner: unescape(str(p, 0)), Mode: driver.Mode(number(p, 1)), Permits: int(number(p, 2)), Note: str(p, 3),
			Waiting: duration(number(p, 4)),
		})
	}
	return len(fields) == 4
}

// List implements driver.Operator. It scans all keys of the server, so it takes time in proportion
// to their number; other requests are served meanwhile.
func (c *client) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return c.list(ctx, prefix, c.layout.pattern(prefix), c.layout.name, c.inspect)
}

// list is List of a layout in which records match a pattern, and named returns the name that a key belongs to.
func (c *link) list(
	ctx context.Context, prefix, pattern string, named func(key string) (string, bool),
	inspect func(context.Context, ...string) ([]driver.Info, error),
) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		seen := map[string]bool{} // a scan may show a key twice
		parts := c.parts()
		for cursor := "0"; len(parts) > 0; {
			keys, next, err := c.scan(ctx, parts[0], cursor, pattern)
			var names []string
			for _, key := range keys {
				key, _ := key.(string)
				if name, ok := named(key); ok && !seen[name] && strings.HasPrefix(name, prefix) {
					seen[name], names = true, append(names, name)
				}
			}
			var infos []driver.Info
			if len(names) > 0 {
				infos, err = inspect(ctx, names...)
			}
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			for _, info := range infos {
				if !info.Idle() && !yield(info, nil) {
					return
				}
			}
			if cursor = next; cursor == "0" {
				parts = parts[1:]
			}
		}
	}
}

// scanned is how many keys the server looks at in one go.
const scanned = 1000

// scan returns keys of a part that match a pattern, and the next cursor.
func (c *link) scan(ctx context.Context, part, cursor, pattern string) (keys []any, next string, err error) {
	reply := c.shared.do(ctx, []Command{{Part: part, Args: []string{
		"SCAN", cursor, "MATCH", pattern, "COUNT", strconv.Itoa(scanned),
	}}})[0]
	fields, _ := reply.Value.([]any)
	next = str(fields, 0)
	switch {
	case reply.Err != nil:
		return nil, "", Explain(reply.Err)
	case next == "":
		return nil, "", errUnexpected(reply.Value)
	}
	return list(fields, 1), next, nil
}

// Break implements driver.Operator.
func (c *client) Break(ctx context.Context, name string, token driver.Token) error {
	return c.status(ctx, breakScript, c.command(breakScript, c.layout.keys(name), decimal(int64(token))))
}

// status runs a script that replies with the status of a hold.
func (c *link) status(ctx context.Context, s *script, command Command) error {
	reply := c.shared.run(ctx, s, command)[0]
	if reply.Err != nil {
		return Explain(reply.Err)
	}
	return statusError(reply.Value)
}
