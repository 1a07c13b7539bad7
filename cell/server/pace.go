package server

import (
	"context"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// pace bounds how often a principal calls this member. Renewals and releases have a lane of their own: nobody
// loses a session, and no lock stays closed, because the same principal asks for too much else.
type pace struct {
	ordinary, renewals *rate.Limiter
	underWay           atomic.Int64 // ordinary calls
	most               atomic.Int64
}

// perSession is how many renewals and releases per second each session that a principal may have adds.
const perSession = 5

// newPace returns the pace of a principal that has made no call yet: its buckets are full.
func newPace(l *limits) *pace {
	p := &pace{
		ordinary: rate.NewLimiter(rate.Limit(l.Requests), burst(l.Requests)),
		renewals: rate.NewLimiter(rate.Limit(l.renewals()), burst(l.renewals())),
	}
	p.most.Store(int64(l.Calls))
	return p
}

// set changes the limits. What is in the buckets stays.
func (p *pace) set(l *limits) {
	p.ordinary.SetLimit(rate.Limit(l.Requests))
	p.ordinary.SetBurst(burst(l.Requests))
	p.renewals.SetLimit(rate.Limit(l.renewals()))
	p.renewals.SetBurst(burst(l.renewals()))
	p.most.Store(int64(l.Calls))
}

// renewals is how many renewals and releases per second a principal may make.
func (l *limits) renewals() float64 { return 2*l.Requests + perSession*float64(l.Sessions) }

// burst is what a bucket holds: as much as comes in a second.
func burst(perSecond float64) int { return max(int(perSecond), 1) }

// begin reports whether another call may begin, and what to do when it has ended.
func (p *pace) begin(l lane) (end func(), err error) {
	end = func() {}
	switch {
	case p == nil || l == unpaced:
		return end, nil
	case l == renewal:
		if !p.renewals.Allow() {
			return nil, refuse(cellv1.Reason_REASON_QUOTA, "the principal renews and releases too often")
		}
		return end, nil
	case !p.ordinary.Allow():
		return nil, refuse(cellv1.Reason_REASON_QUOTA, "the principal calls too often: at most %v requests per second are right", p.ordinary.Limit())
	case p.underWay.Add(1) > p.most.Load():
		p.underWay.Add(-1)
		return nil, refuse(cellv1.Reason_REASON_QUOTA, "the principal has too many calls under way: at most %d are right", p.most.Load())
	}
	return func() { p.underWay.Add(-1) }, nil
}

// withdraw waits until the principal may withdraw n requests that are not there: each is an ordinary call.
func (p *pace) withdraw(ctx context.Context, n int) error {
	if p == nil {
		return nil
	}
	if err := p.ordinary.WaitN(ctx, min(n, p.ordinary.Burst())); err != nil {
		return refuse(cellv1.Reason_REASON_QUOTA, "the principal withdraws too many requests that are not there: at most %v per second are right", p.ordinary.Limit())
	}
	return nil
}
