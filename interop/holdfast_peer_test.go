//go:build soak

package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/redislock"
)

// holdfastPeer is Holdfast as a peer: this program, started again.
type holdfastPeer struct {
	server *redis.Client
	client *holdfast.Client
	lease  *holdfast.Lease
}

// serve is the program of the peer. Its commands are those of the other languages' peers.
func serve(address string) error {
	ctx := context.Background()
	client, err := holdfast.Open(ctx, "redis://"+address+"?hf.layout=setnx")
	if err != nil {
		return err
	}
	p := &holdfastPeer{server: redis.NewClient(&redis.Options{Addr: address}), client: client}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer, err := p.obey(ctx, strings.Fields(lines.Text()))
		if err != nil {
			return fmt.Errorf("%s: %w", lines.Text(), err)
		}
		fmt.Println(answer)
	}
	return nil
}

// obey carries out one command.
func (p *holdfastPeer) obey(ctx context.Context, words []string) (string, error) {
	switch words[0] {
	case "lock":
		lease, err := p.client.Mutex(words[1], &holdfast.Options{TTL: milliseconds(words[2])}).TryAcquire(ctx)
		if errors.Is(err, holdfast.ErrHeld) {
			return "busy", nil
		}
		p.lease = lease
		return "held", err
	case "extend":
		ok, err := kept(p.lease.Renew(ctx), holdfast.ErrLost)
		return choose(ok, "ok", "lost"), err
	case "unlock":
		ok, err := kept(p.lease.Release(), holdfast.ErrLost)
		return choose(ok, "ok", "lost"), err
	case "count":
		n, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return "ok", p.count(ctx, words[1], words[2], n)
	}
	return "", errors.New("no such command")
}

// count increments a number so many times, each time by a read and a write under the lock.
func (p *holdfastPeer) count(ctx context.Context, name, key string, n int) error {
	for range n {
		err := p.client.Mutex(name, nil).Do(ctx, func(ctx context.Context, _ *holdfast.Lease) error {
			number, err := p.server.Get(ctx, key).Int()
			if err != nil && err != redis.Nil {
				return err
			}
			time.Sleep(2 * time.Millisecond)
			return p.server.Set(ctx, key, number+1, 0).Err()
		})
		if err != nil {
			return err
		}
		time.Sleep(rand.N(10 * time.Millisecond))
	}
	return nil
}

func milliseconds(text string) time.Duration {
	n, _ := strconv.Atoi(text)
	return time.Duration(n) * time.Millisecond
}

func choose(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}

// kept reports whether a call has succeeded, and no error if it says that the lock was lost.
func kept(err, lost error) (bool, error) {
	if errors.Is(err, lost) {
		return false, nil
	}
	return err == nil, err
}
