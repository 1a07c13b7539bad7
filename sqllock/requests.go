package sqllock

// requestLog knows of which owners the store has answered all requests. No request of such an owner can still
// arrive, so the store need not keep a tombstone when it is withdrawn (P6): rows with many tombstones are slow. The
// log covers the last owners only; for all others the store keeps a tombstone. The client's mutex guards it.
type requestLog struct {
	underWay map[string]int // requests, by owner
	known    map[string]bool
	last     [1024]string // the owners in known, the oldest at next
	next     int
}

// sent notes that a request of the owner is sent.
func (l *requestLog) sent(owner string) {
	if l.underWay == nil {
		l.underWay, l.known = map[string]int{}, map[string]bool{}
	}
	l.underWay[owner]++
}

// answered notes that a request of the owner was answered, or that its outcome is unknown.
func (l *requestLog) answered(owner string, unknown bool) {
	if l.underWay[owner]--; l.underWay[owner] == 0 {
		delete(l.underWay, owner)
	}
	if before, again := l.known[owner]; again {
		l.known[owner] = before && !unknown
		return
	}
	delete(l.known, l.last[l.next])
	l.known[owner] = !unknown
	l.last[l.next] = owner
	l.next = (l.next + 1) % len(l.last)
}

// allAnswered reports whether all requests of the owner are known to have been answered.
func (l *requestLog) allAnswered(owner string) bool {
	return l.known[owner] && l.underWay[owner] == 0
}
