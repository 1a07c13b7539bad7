package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfastlock/holdfast/driver"
)

// A server that keeps its data in memory, or writes them to disk now and then, may come back without its
// last holds. Whether it is the same server as before is told by something that a restart always loses,
// whatever is on the disk: its cache of scripts. A client that finds none begins a life: it loads a
// script whose text has a random number, and then sets the key PREFIX:life to that number, unless
// another client was quicker. As long as the server knows the script it is in that life, so asking for the
// script behind a request, in one pipeline, says in which life the request was carried out. FLUSHALL ends a
// life too, because it deletes the key; and so does SCRIPT FLUSH, which delays and harms nothing.
//
// PREFIX:admitted is the number of a life that counts.

// lifeKey and admittedKey are the keys of a server's life.
func (l layout) lifeKey() string     { return l.prefix + ":life" }
func (l layout) admittedKey() string { return l.prefix + ":admitted" }

// lifeScript is the script that marks a life.
func lifeScript(life driver.Life) *script { return scriptOf("return '" + lifeText(life) + "'") }

func lifeText(life driver.Life) string { return strconv.FormatUint(uint64(life), 16) }

// beginScript sets the life, if it is still what the client has read before, and returns it.
var beginScript = scriptOf(`
local life = redis.call('GET', KEYS[1]) or ''
if life == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2])
  return ARGV[2]
end
return life`)

// admitScript admits the life, if it is the present one. The script that marks it was asked for before, in
// the same pipeline, and the key says that no other life has begun since.
var admitScript = scriptOf(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[1])
return 1`)

// inLife asks whether the server is in a life. The commands have the key of those before them in the
// pipeline, so that they are carried out behind those.
func (c *client) inLife(life driver.Life, key string) []Command {
	return []Command{
		{Args: []string{"SCRIPT", "EXISTS", lifeScript(life).sha}, Key: key},
		{Args: []string{"GET", c.layout.lifeKey()}, Key: key},
	}
}

// isIn reads the replies to it.
func isIn(life driver.Life, replies []Reply) bool {
	found, _ := replies[0].Value.([]any)
	return number(found, 0) == 1 && replies[1].Value == lifeText(life)
}

// stillIn asks the server alone.
func (c *client) stillIn(ctx context.Context, life driver.Life) (bool, error) {
	replies := c.shared.do(ctx, c.inLife(life, c.layout.lifeKey()))
	return isIn(life, replies), Explain(cmp.Or(replies[0].Err, replies[1].Err))
}

// Vote implements driver.Voter.
func (c *client) Vote(ctx context.Context, req driver.Request, life driver.Life) (driver.Grant, bool, error) {
	if err := c.alive(ctx); err != nil {
		return driver.Grant{}, false, err
	}
	if mayBePlain(&req) {
		key, member := c.record(&req)
		take := Command{Args: []string{"EVALSHA", takeScript.sha, "1", key, member}, Key: key}
		sent := c.clock.Now()
		replies := c.voteIn(ctx, life, takeScript, take)
		if g, err := c.plainReply(ctx, req, &replies[0], sent); err != errAsk {
			return g, isIn(life, replies[1:]), err
		}
	}
	sent := c.clock.Now()
	replies := c.voteIn(ctx, life, askScript, c.askCommand(&req, sent, false, false))
	g, err := c.asked(ctx, req, &replies[0], sent)
	return g, isIn(life, replies[1:]), err
}

// voteIn runs a script that takes a hold, and asks behind it, in one pipeline, whether the server is in a life.
func (c *client) voteIn(ctx context.Context, life driver.Life, s *script, take Command) []Reply {
	commands := append([]Command{take}, c.inLife(life, take.Key)...)
	replies := c.shared.do(ctx, commands)
	if unknown(&replies[0]) {
		commands[0].Args[0], commands[0].Args[1] = "EVAL", s.text
		replies = c.shared.do(ctx, commands)
	}
	return replies
}

// errNoLife says that the server's life could not be agreed on.
var errNoLife = errors.New("the server restarts, or its scripts are flushed, again and again")

// Life implements driver.Voter.
func (c *client) Life(ctx context.Context) (driver.Life, bool, error) {
	const attempts = 5 // each fails only if the server restarts, or another client is quicker, meanwhile
	for range attempts {
		if err := c.alive(ctx); err != nil {
			return 0, false, err
		}
		key := c.layout.lifeKey()
		replies := c.shared.do(ctx, []Command{
			{Key: key, Args: []string{"GET", key}}, {Key: key, Args: []string{"GET", c.layout.admittedKey()}},
		})
		for _, r := range replies {
			if r.Err != nil {
				return 0, false, Explain(r.Err)
			}
		}
		known, _ := replies[0].Value.(string)
		if n, err := strconv.ParseUint(known, 16, 64); err == nil && n != 0 {
			if same, err := c.stillIn(ctx, driver.Life(n)); err != nil || same {
				return driver.Life(n), replies[1].Value == known, err
			}
		}
		if err := c.beginLife(ctx, known); err != nil {
			return 0, false, err
		}
	}
	return 0, false, errNoLife
}

// beginLife begins a life in place of the one that the client has read, which is over.
func (c *client) beginLife(ctx context.Context, known string) error {
	var random [8]byte
	rand.Read(random[:])
	life := driver.Life(binary.BigEndian.Uint64(random[:]) | 1)
	key := c.layout.lifeKey()
	// The script first: a life that others can read must be marked.
	load := c.shared.do(ctx, []Command{{Key: key, Args: []string{"SCRIPT", "LOAD", lifeScript(life).text}}})[0]
	if load.Err != nil {
		return Explain(load.Err)
	}
	reply := c.shared.run(ctx, beginScript, beginScript.command([]string{key}, known, lifeText(life)))[0]
	return Explain(reply.Err)
}

// Admit implements driver.Voter.
func (c *client) Admit(ctx context.Context, life driver.Life) error {
	if err := c.alive(ctx); err != nil {
		return err
	}
	// Suppose the server restarts between the two, with the key of the life on its disk. Then the life that is
	// admitted is over, and no client takes it for the present one.
	if same, err := c.stillIn(ctx, life); !same {
		return errors.Join(fmt.Errorf("life %s is over", lifeText(life)), err)
	}
	keys := []string{c.layout.lifeKey(), c.layout.admittedKey()}
	reply := c.shared.run(ctx, admitScript, admitScript.command(keys, lifeText(life)))[0]
	if reply.Err == nil && reply.Value != int64(1) {
		return fmt.Errorf("life %s is over", lifeText(life))
	}
	return Explain(reply.Err)
}

// Vote implements driver.Voter.
func (s setnx) Vote(ctx context.Context, req driver.Request, life driver.Life) (driver.Grant, bool, error) {
	if req.Mode != driver.Exclusive {
		return driver.Grant{}, false, driver.ErrUnsupported
	}
	if err := s.c.alive(ctx); err != nil {
		return driver.Grant{}, false, err
	}
	sent := s.c.clock.Now()
	replies := s.c.voteIn(ctx, life, setnxTake, s.take(&req))
	g, err := s.taken(ctx, req, &replies[0], sent)
	return g, isIn(life, replies[1:]), err
}

// Life implements driver.Voter.
func (s setnx) Life(ctx context.Context) (driver.Life, bool, error) { return s.c.Life(ctx) }

// Admit implements driver.Voter.
func (s setnx) Admit(ctx context.Context, life driver.Life) error { return s.c.Admit(ctx, life) }

// Vote implements driver.Voter, for RedissonRedLock.
func (r redisson) Vote(ctx context.Context, req driver.Request, life driver.Life) (driver.Grant, bool, error) {
	sent := r.c.clock.Now()
	w, command, err := r.ready(ctx, &req, r.extra)
	if err != nil {
		return driver.Grant{Request: req}, false, err
	}
	replies := r.c.voteIn(ctx, life, w.take, command)
	g, err := r.taken(ctx, w, req, &replies[0], sent)
	return g, isIn(life, replies[1:]), err
}

// Life implements driver.Voter.
func (r redisson) Life(ctx context.Context) (driver.Life, bool, error) { return r.c.Life(ctx) }

// Admit implements driver.Voter.
func (r redisson) Admit(ctx context.Context, life driver.Life) error { return r.c.Admit(ctx, life) }
