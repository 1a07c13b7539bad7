package driver

import "context"

// Watcher is a driver that learns of changes by itself (OpWatch). Without it package holdfast
// inspects the name once in every poll.
type Watcher interface {
	// Watch returns a channel that receives a value after the holders of the name, or their notes,
	// may have changed. It MUST be subscribed before it returns: the channel MUST receive a value for
	// each change that an Inspect which begins after that does not show.
	// Several changes MAY be one value, and there MAY be values without a change. The watch MUST
	// end with the context or with the driver; it MUST then close the channel.
	Watch(ctx context.Context, name string) (<-chan struct{}, error)
}
