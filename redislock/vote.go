package redislock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast/internal/vote"
)

// A server that keeps its data in memory, or writes them to disk now and then, may come back without its
// last holds. A life of a server is made of two things: of its run_id, which each start chooses anew and
// nothing stores, and of a random number in the key PREFIX:memory, which FLUSHALL deletes. The questions
// for both stand behind a request in one pipeline, so the answers say in which life the request was
// carried out. The cache of scripts would not do: servers before Redis 7 write it to their disks.
//
// PREFIX:memory has three words: the random number, the longest TTL of any client in milliseconds, and the
// life that counts, if one does.

// memoryKey is the key of what a server remembers of its life.
func (l layout) memoryKey() string { return l.prefix + ":memory" }

func lifeText(life vote.Life) string { return strconv.FormatUint(uint64(life), 16) }

// rememberScript chooses the random number and raises the longest TTL, where that is needed, and returns the key.
var rememberScript = scriptOf(`
local text = redis.call('GET', KEYS[1]) or ''
local random, longest, admitted = string.match(text, '^(%x+) (%d+) (%x*)$')
if not random or tonumber(longest) < tonumber(ARGV[2]) then
  text = (random or ARGV[1]) .. ' ' .. ARGV[2] .. ' ' .. (admitted or '')
  redis.call('SET', KEYS[1], text)
end
return text`)

// admitScript admits a life, if the random number is still that of this life.
var admitScript = scriptOf(`
local random, longest = string.match(redis.call('GET', KEYS[1]) or '', '^(%x+) (%d+) ')
if random ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], random .. ' ' .. longest .. ' ' .. ARGV[2])
return 1`)

// present is a server's life, and what the server remembers of it.
type present struct {
	life     vote.Life
	random   string
	longest  time.Duration
	admitted bool
}

// presentOf reads the replies to INFO and to the question for the key. The life is 0 if there is none.
func presentOf(info, memory *Reply) (p present, err error) {
	if err := cmp.Or(info.Err, memory.Err); err != nil {
		return p, Explain(err)
	}
	text, _ := info.Value.(string)
	_, after, _ := strings.Cut(text, "run_id:")
	run, _, ended := strings.Cut(after, "\r\n")
	if run == "" || !ended {
		return p, errors.New("the server's INFO has no run_id, so nobody can tell whether it has restarted")
	}
	known, _ := memory.Value.(string)
	words := strings.Split(known, " ")
	if len(words) != 3 {
		return p, nil // FLUSHALL has deleted it
	}
	sum := sha1.Sum([]byte(run + " " + words[0]))
	p.life, p.random = vote.Life(binary.BigEndian.Uint64(sum[:])|1), words[0]
	p.admitted = words[2] == lifeText(p.life)
	ms, err := strconv.ParseInt(words[1], 10, 64)
	p.longest = rest(ms)
	return p, err
}

// inLife asks in which life the server is. The commands have the key of those before them in the
// pipeline, so that they are carried out behind those.
func (c *link) inLife(key string) []Command {
	return []Command{
		{Args: []string{"INFO", "server"}, Key: key},
		{Args: []string{"GET", c.layout.memoryKey()}, Key: key},
	}
}

// Lacks tells driver.As that several servers do not vote together (P1).
func (c *link) Lacks(ability any) bool { _, is := ability.(*vote.Voter); return is && !c.votes }

// in asks for a vote in a life. A longer TTL than the last that Life has returned is news, too, which Life must be
// asked for.
func (c *link) in(life vote.Life) asking {
	return func(ctx context.Context, s *script, take Command) (reply answer, same bool) {
		replies := c.voteIn(ctx, s, take)
		p, err := presentOf(&replies[1].Reply, &replies[2].Reply)
		return replies[0], err == nil && p.life == life && int64(p.longest) <= c.longest.Load()
	}
}

// voteIn runs a script that takes a hold, and asks behind it, in one pipeline, in which life the server is.
func (c *link) voteIn(ctx context.Context, s *script, take Command) []answer {
	commands := append([]Command{take}, c.inLife(take.Key)...)
	replies := c.shared.do(ctx, commands)
	if s.Again(&replies[0].Reply, &commands[0]) {
		replies = c.shared.do(ctx, commands)
	}
	return replies
}

// Life implements vote.Voter.
func (c *link) Life(ctx context.Context, longest time.Duration) (vote.Life, bool, time.Duration, error) {
	var random [8]byte
	rand.Read(random[:])
	key := c.layout.memoryKey()
	remember := rememberScript.Command([]string{key}, hex.EncodeToString(random[:]), millis(longest))
	replies := c.voteIn(ctx, rememberScript, remember)
	p, err := presentOf(&replies[1].Reply, &replies[0].Reply)
	if err == nil {
		c.longest.Store(int64(p.longest))
	}
	return p.life, p.admitted, p.longest, err
}

// Admit implements vote.Voter.
func (c *link) Admit(ctx context.Context, life vote.Life) error {
	// If the server restarts between the two, with the key on its disk, then the life that is admitted is over,
	// and no client takes it for the present one.
	key := c.layout.memoryKey()
	replies := c.shared.do(ctx, c.inLife(key))
	p, err := presentOf(&replies[0].Reply, &replies[1].Reply)
	if err == nil && p.life == life {
		reply := c.shared.run(ctx, admitScript, admitScript.Command([]string{key}, p.random, lifeText(life)))[0]
		if reply.Err != nil || reply.Value == int64(1) {
			return Explain(reply.Err)
		}
	}
	return cmp.Or(err, fmt.Errorf("life %s is over", lifeText(life)))
}

// durable are the settings by which a server syncs each write to its disk before it answers.
var durable = [...][2]string{{"appendonly", "yes"}, {"appendfsync", "always"}}

// Durable implements vote.Voter. A server that does not tell its settings, or not to this user, is believed.
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
