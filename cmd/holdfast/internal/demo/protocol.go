package demo

import "time"

// What the demo and its processes say to each other, as lines of JSON on the
// standard input and output of each process. The input's end is its order to
// leave.

// config is the first line that a process gets. The URLs may hold a
// password, so they must not be an argument or in the environment, where others
// can see it.
type config struct {
	Job      string // "sale" or "cron"
	Database string // its URL
	Store    string // the URL; "": none is needed
	Name     string // of the lock
	Strategy string // sale: which
	Stock    int    // sale: how many items there were at first
	Replica  int    // cron: which
}

// schedule is that of the job of the cron demo.
type schedule struct {
	Start   time.Time     // of tick 0
	Tick    time.Duration // from one to the next
	Ticks   int
	Skew    time.Duration // how late this replica's clock is
	MinHold time.Duration
}

// request is what a process of the sale gets after that.
type request struct {
	ID    int
	User  int
	Pause bool // stop at the payment, and say so
	GoOn  bool // no request: go on after the pause
}

// reply is what a process says.
type reply struct {
	Ready   bool   `json:",omitempty"` // the first: it has opened everything
	Store   string `json:",omitempty"` // with Ready: which store it has opened
	AtPause bool   `json:",omitempty"` // the request to be paused has come to the payment
	ID      int    `json:",omitempty"` // of the request that is answered
	Answer  answer `json:",omitempty"`
	Tick    int    `json:",omitempty"` // cron: ticks that are over
	Error   string `json:",omitempty"`
}
