// Package redisson has the rules of the wire format of Redisson, a client library of Java: which keys and channels
// belong to a name, and how to hear what is published on channels ([Ears]). Redisson 4.7 and 3.52 agree in all that
// is here.
package redisson

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/redislock/internal/slot"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// PublishInCluster returns the command by which Redisson publishes in a cluster: SPUBLISH, if it has sharded channels.
func PublishInCluster(ctx context.Context, do func(context.Context, []wire.Command) []wire.Reply) (string, error) {
	err := do(ctx, []wire.Command{{Args: []string{"PUBSUB", "SHARDNUMSUB"}}})[0].Err
	if _, refused := err.(*wire.ServerError); refused {
		return "PUBLISH", nil
	}
	return "SPUBLISH", err
}

// Prefixed returns the key or channel that Redisson makes of a prefix and a name. A name that has no {
// becomes the hash tag, so that in a cluster the key has the name's slot.
func Prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// Suffixed is like Prefixed, with the name before a suffix.
func Suffixed(name, suffix string) string {
	if strings.Contains(name, "{") {
		return name + ":" + suffix
	}
	return "{" + name + "}:" + suffix
}

// LockChannel is the channel of an RLock, and what those of the waiters of an RFairLock begin with.
func LockChannel(name string) string { return Prefixed("redisson_lock__channel", name) }

// ReadWriteChannel is the channel of an RReadWriteLock.
func ReadWriteChannel(name string) string { return Prefixed("redisson_rwlock", name) }

// ReadTimeout is the key that lasts as long as the first read hold of an owner.
func ReadTimeout(name, owner string) string { return Suffixed(name, owner) + ":rwlock_timeout:1" }

// PermitTimeouts is the key of the permits of an RPermitExpirableSemaphore that are taken.
func PermitTimeouts(name string) string { return Suffixed(name, "timeout") }

// FairQueue is the key of the waiters of an RFairLock in their order, and FairTimeouts the one of when their
// places end.
func FairQueue(name string) string    { return Prefixed("redisson_lock_queue", name) }
func FairTimeouts(name string) string { return Prefixed("redisson_lock_timeout", name) }

// Tokens is the key of the counter of an RFencedLock, which has no end.
func Tokens(name string) string { return Prefixed("redisson_lock_token", name) }

// SemaphoreChannel is the channel of an RSemaphore, and of an RPermitExpirableSemaphore.
func SemaphoreChannel(name string) string { return Prefixed("redisson_sc", name) }

// LatchChannel is the channel of an RCountDownLatch. Its braces are there even if the name has some.
func LatchChannel(name string) string { return "redisson_countdownlatch__channel__{" + name + "}" }

// CheckCluster returns an error if a name is of no use for locks in a cluster: see CheckSlots.
func CheckCluster(name string) error {
	return CheckSlots(name, Prefixed("x", name), Suffixed(name, "x"))
}

// CheckSlots returns an error if keys and channels of a name, the name first, are not of use in a cluster:
// if they are in several slots, so that no script may use them; or if Redisson, which finds the slot of a
// name in a way of its own, asks another server than the one that has it.
func CheckSlots(name string, others ...string) error {
	for _, key := range append([]string{name}, others...) {
		switch {
		case slot.Of(key) != slot.Of(name):
			return fmt.Errorf("in a cluster %q cannot be the name: Redisson's key %q is in another hash slot; "+
				"use a name without braces, or with one hash tag that is not empty: %w", name, key, driver.ErrUnsupported)
		case redissonSlot(key) != slot.Of(key):
			return fmt.Errorf("in a cluster %q cannot be the name: Redisson looks for it in another hash slot than "+
				"it has; use a name without braces, or with one hash tag that is not empty: %w", name, driver.ErrUnsupported)
		}
	}
	return nil
}

// redissonSlot returns the slot in which Redisson looks for a key. It ends the hash tag at the first } of all,
// where the server takes the first one behind the {.
func redissonSlot(key string) int {
	begin, end := strings.Index(key, "{"), strings.Index(key, "}")
	if begin >= 0 && end > begin+1 {
		key = key[begin+1 : end]
	}
	return slot.OfText(key)
}
