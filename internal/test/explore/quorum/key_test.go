package quorum_test

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/vote"
)

// order is an order of nodes, and one of clients: the world is the same if they change places.
type order struct {
	nodes   [nodes]int
	clients []int
}

// key returns what tells a world from others. Worlds that differ only in who is who have the same key: of
// all orders of nodes and clients that do not differ by what each is alone, the one with the least text
// counts.
func (w *world) key() []byte {
	var alone [nodes]uint64
	for n := range nodes {
		alone[n] = w.nodeAlone(n)
	}
	clients := make([]uint64, w.clients)
	for c := range clients {
		clients[c] = w.clientAlone(c)
	}
	var least, text []byte
	for _, c := range orders[w.clients] {
		if !ascending(clients, c) {
			continue
		}
		for _, n := range orders[nodes] {
			if !ascending(alone[:], n) {
				continue
			}
			if text = w.text(text[:0], order{[nodes]int(n), c}); least == nil || bytes.Compare(text, least) < 0 {
				least, text = text, least
			}
		}
	}
	return least
}

// orders are all orders of so many.
var orders = [...][][]int{
	1: {{0}},
	2: {{0, 1}, {1, 0}},
	3: {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}},
}

func ascending(of []uint64, order []int) bool {
	for i, j := range order[1:] {
		if of[order[i]] > of[j] {
			return false
		}
	}
	return true
}

// mix adds to a number that tells one thing from others.
func mix(h uint64, ns ...int) uint64 {
	for _, n := range ns {
		h = (h ^ uint64(n)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	return h
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// nodeAlone tells nodes apart, whoever the clients are.
func (w *world) nodeAlone(i int) uint64 {
	n := &w.nodes[i]
	h := mix(1, bit(n.holder != 0), w.lasts(n), int(n.last), int(n.token), int(w.closed(i)), int(n.ahead))
	sum := uint64(0)
	for c := range w.clients {
		cl := &w.client[c]
		x := &cl.asked[i]
		h := mix(2, int(x.kind), bit(x.answered), bit(n.holder != 0 && n.holder == cl.owner), int(cl.phase))
		if cl.phase == trying {
			h = mix(h, bit(cl.attempt.Given.Has(i)), bit(cl.attempt.Refused.Has(i)), int(cl.high[i]))
		}
		sum += h
	}
	return mix(h, int(sum))
}

// lasts returns for how many ticks a node's vote lasts.
func (w *world) lasts(n *node) int {
	if n.holder == 0 {
		return 0
	}
	return n.expires - w.now - int(n.ahead)
}

// closed returns for how many microseconds a node grants nothing; less than 0, as far as its clock may be set back.
func (w *world) closed(n int) int16 {
	if !w.forgets {
		return 0
	}
	d := w.nodes[n].memory.Opens.Sub(w.nodeAt(n))
	return int16(max(d, -time.Duration(w.left.backs)*tick) / time.Microsecond)
}

// clientAlone tells clients apart, whoever the nodes are.
func (w *world) clientAlone(c int) uint64 {
	cl := &w.client[c]
	h := mix(3, int(cl.phase), bit(cl.renewing), int(cl.attempts), int(cl.renewals), int(cl.missed), int(cl.token))
	switch {
	case cl.renewing:
		h = mix(h, w.ago(c, cl.until), w.ago(c, cl.renewal.Sent), cl.renewal.Given.Len(), cl.renewal.Refused.Len())
	case cl.phase == holding:
		h = mix(h, w.ago(c, cl.until))
	case cl.phase == trying:
		h = mix(h, w.ago(c, cl.attempt.Sent), cl.attempt.Given.Len(), cl.attempt.Refused.Len())
	}
	return h
}

// ago returns how long ago an instant is by a client's clock.
func (w *world) ago(c int, t driver.Instant) int { return int(w.at(c).Sub(t)) / 1000 }

// text writes a world down in an order. Instants are counted from now.
func (w *world) text(b []byte, o order) []byte {
	set := func(s vote.Set) (out byte) {
		for i, n := range o.nodes {
			if s.Has(n) {
				out |= 1 << i
			}
		}
		return out
	}
	flags := func(fs ...bool) {
		out := byte(0)
		for i, f := range fs {
			out |= byte(bit(f)) << i
		}
		b = append(b, out)
	}
	var is [owners + 1]byte // owners in this order
	for i, c := range o.clients {
		for a := range attempts {
			is[1+c*attempts+a] = byte(1 + i*attempts + a)
		}
	}
	l := &w.left
	b = append(b, byte(l.cancels), byte(l.losses), byte(l.late), byte(l.restarts), byte(l.gains), byte(l.backs), byte(l.misses))
	if w.ticks > 0 {
		b = append(b, byte(w.now))
	}
	b = append(b, byte(w.granted), byte(w.granted>>8))
	b = binary.LittleEndian.AppendUint64(b, w.all)
	flags(w.err != nil)
	for _, i := range o.nodes {
		n := &w.nodes[i]
		b = append(b, is[n.holder], byte(w.lasts(n)), byte(n.token), byte(n.token>>8), byte(n.last), byte(n.last>>8), byte(n.ahead))
		b = binary.LittleEndian.AppendUint16(b, uint16(w.closed(i)))
	}
	for _, c := range o.clients {
		for own := 1 + c*attempts; own < 1+(c+1)*attempts; own++ {
			b = append(b, set(w.stray[own]))
		}
		cl := &w.client[c]
		b = append(b, byte(cl.phase), is[cl.owner], byte(cl.attempts), byte(cl.renewals), byte(cl.missed))
		at := func(ts ...driver.Instant) {
			for _, t := range ts {
				d := w.ago(c, t)
				b = append(b, byte(d), byte(d>>8))
			}
		}
		for _, n := range o.nodes {
			x := &cl.asked[n]
			b = append(b, byte(x.kind)|byte(bit(x.answered))<<4)
			if x.answered {
				flags(x.reply.yes)
				b = append(b, byte(x.reply.token))
			}
		}
		if cl.phase == trying {
			a := &cl.attempt
			at(a.Sent)
			b = append(b, byte(a.Phase), byte(a.Token), byte(cl.before), set(a.Given), set(a.Counted), set(a.Refused), set(a.Silent), set(a.Asked), set(a.Written))
			for _, n := range o.nodes {
				b = append(b, byte(cl.high[n]))
			}
		}
		if cl.phase == holding {
			at(cl.until)
			b = append(b, byte(cl.token))
		}
		if flags(cl.renewing); cl.renewing {
			r := &cl.renewal
			at(r.Sent, r.Valid)
			b = append(b, byte(r.Phase), set(r.Given), set(r.Refused), set(r.Silent), set(r.Asked))
		}
	}
	return b
}
