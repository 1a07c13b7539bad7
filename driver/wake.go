package driver

// Waker is a driver that has no queue, and whose store may tell when a name becomes free. Without it
// package holdfast polls each Caps.Poll at most; with it, it polls each DefaultPoll while the store tells.
// Like ContentionHinter it has no bit in [Ops], because it changes nothing but the number of requests.
type Waker interface {
	// Wakes begins to listen for the name to become free. It MUST NOT block, nor ask the store on the
	// caller's goroutine. nil: the store does not tell.
	Wakes(name string) Wakes
}

// Wakes tells one waiter when its name may be free. Its methods are safe for concurrent use.
type Wakes interface {
	// C returns the channel that receives a value when the name may have become free, and whenever Sure
	// has changed. Several occasions MAY be one value, there MAY be values for nothing, and the channel
	// is never closed.
	C() <-chan struct{}
	// Sure reports whether the store tells at present. While Sure is true, C MUST receive a value after the
	// release that follows a refused Try, or after the driver has noticed that the store tells no more. The
	// value MAY be missing if the name opens by time: package holdfast polls.
	Sure() bool
	// Stop ends the listening.
	Stop()
}
