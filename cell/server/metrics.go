package server

import (
	"context"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	hfcell "github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// metrics count the calls of one member. No label is what a client may choose: names, sessions and
// principals are none.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	parked   *prometheus.GaugeVec
}

// newMetrics returns the metrics of a member. What it counts itself is asked for when they are read.
func newMetrics(m *Member) *metrics {
	c := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_cell_calls_total", Help: "Calls that were answered, by the reason of the error; ok: none.",
		}, []string{"call", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_cell_call_seconds", Help: "How long calls took that were not parked.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}, []string{"call"}),
		parked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "holdfast_cell_calls_under_way", Help: "Calls that have not been answered yet, the parked ones included.",
		}, []string{"call"}),
	}
	c.registry.MustRegister(c.calls, c.seconds, c.parked)
	mirror, etcd := m.front.mirror, m.etcd.Server
	gauge := func(name, help string, value func() int64) {
		c.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
	}
	counted := func(count func() int) func() int64 {
		return func() int64 {
			mirror.mu.Lock()
			defer mirror.mu.Unlock()
			return int64(count())
		}
	}
	oneIf := func(is bool) int64 {
		if is {
			return 1
		}
		return 0
	}
	gauge("holdfast_cell_sessions", "Sessions that are open.", counted(func() int { return len(mirror.sessions) }))
	gauge("holdfast_cell_locks", "Names that are held, waited for or closed.", counted(func() int { return mirror.names.Len() }))
	gauge("holdfast_cell_files", "Nodes.", counted(func() int { return mirror.nodes.Len() }))
	gauge("holdfast_cell_revision", "The revision that the member has come to.", counted(func() int { return int(mirror.rev) }))
	gauge("holdfast_cell_has_leader", "1 if the member knows a leader.", func() int64 { return oneIf(etcd.Leader() != 0) })
	gauge("holdfast_cell_leads", "1 if the member leads the cell.", func() int64 { return oneIf(m.leads()) })
	gauge("holdfast_cell_refuses_new", "1 if there is too little space for new sessions, locks and files.",
		func() int64 { return oneIf(m.shortage() != "") })
	gauge("holdfast_cell_disk_free_bytes", "What is free on the disk of the member's directory.", func() int64 { return freeSpace(m.config.Data) })
	gauge("holdfast_cell_disk_reserve_bytes", "What is to stay free.", m.reserve.Load)
	gauge("holdfast_cell_file_bytes", "The size of the member's file.", func() int64 { return etcd.Backend().Size() })
	gauge("holdfast_cell_file_used_bytes", "How much of it is in use.", func() int64 { return etcd.Backend().SizeInUse() })
	return c
}

// count counts calls.
func (c *metrics) count(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (resp connect.AnyResponse, err error) {
		answered := c.begin(r)
		defer func() { answered(err) }()
		return next(ctx, r)
	}
}

// begin counts a call that comes, and returns what counts its answer. It is not a part of count, so that a parked call
// keeps less of the stack.
func (c *metrics) begin(r connect.AnyRequest) (answered func(error)) {
	call, begun := callOf(r.Spec()), time.Now()
	underWay := c.parked.WithLabelValues(call)
	underWay.Inc()
	return func(err error) {
		underWay.Dec()
		if !parks(r) {
			c.seconds.WithLabelValues(call).Observe(time.Since(begun).Seconds())
		}
		reason := "ok"
		if why := hfcell.ReasonOf(err); why != 0 {
			reason = strings.ToLower(strings.TrimPrefix(why.String(), "REASON_"))
		} else if err != nil {
			reason = connect.CodeOf(err).String()
		}
		c.calls.WithLabelValues(call, reason).Inc()
	}
}

// callOf is a call as the metrics name it: Locks/Acquire.
func callOf(s connect.Spec) string {
	service, method := path.Split(s.Procedure)
	return service[strings.LastIndexByte(service, '.')+1:] + method
}

// parks reports whether the caller lets a call take long.
func parks(r connect.AnyRequest) bool {
	switch m := r.Any().(type) {
	case *cellv1.KeepAliveRequest:
		return !m.Now
	case *cellv1.AcquireRequest:
		return m.Wait.AsDuration() > 0
	}
	return false
}

// health answers 200 as long as the member works at all: one that does not is to be started again. If ready is wanted it must
// not be about to stop either, and belong to a majority.
func (m *Member) health(ready bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-m.etcd.Server.StopNotify():
			http.Error(w, "etcd has stopped", http.StatusServiceUnavailable)
			return
		default:
		}
		switch {
		case ready && m.stopping.Err() != nil:
			http.Error(w, "the member is about to stop", http.StatusServiceUnavailable)
		case ready && m.etcd.Server.Leader() == 0:
			http.Error(w, "the member knows no leader: a majority of the members must run", http.StatusServiceUnavailable)
		default:
			io.WriteString(w, "ok\n")
		}
	}
}
