package sqllock

// answered knows which requests for a hold or a place the store has answered, so that
// whoever withdraws one need not have the store remember its owner (P6): a row that
// remembers many gets slow. It knows the last ones only; of others the store is told.
// The client's mutex guards it.
type answered struct {
	underWay map[string]int // requests, by owner
	known    map[string]bool
	last     [1024]string // the owners in known, the oldest at next
	next     int
}

// begin says that a request of the owner is sent.
func (a *answered) begin(owner string) {
	if a.underWay == nil {
		a.underWay, a.known = map[string]int{}, map[string]bool{}
	}
	a.underWay[owner]++
}

// end says that a request of the owner was answered, or that what became of it is
// unknown.
func (a *answered) end(owner string, unknown bool) {
	if a.underWay[owner]--; a.underWay[owner] == 0 {
		delete(a.underWay, owner)
	}
	if before, again := a.known[owner]; again {
		a.known[owner] = before && !unknown
		return
	}
	delete(a.known, a.last[a.next])
	a.known[owner] = !unknown
	a.last[a.next] = owner
	a.next = (a.next + 1) % len(a.last)
}

// all reports whether all requests of the owner are known to have been answered.
func (a *answered) all(owner string) bool { return a.known[owner] && a.underWay[owner] == 0 }
