package driver

import "context"

// Watcher is a driver that hears of changes by itself (OpWatch). Where it is
// absent, package holdfast looks again at every poll.
type Watcher interface {
	// Watch returns a channel that gets a value after the holders of the name,
	// or their notes, may have changed. It watches before it returns, so what
	// an Inspect that follows does not show yet is told; several changes may be
	// told as one, and there may be values without a change. The watch ends
	// with the context, or with the driver's; the channel is then closed.
	Watch(ctx context.Context, name string) (<-chan struct{}, error)
}
