package gate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/explore"
)

// This file explores gates: clients with a gate each and goroutines at it,
// before one store with a queue. The gates are real; around them the goroutines
// do step by step what package holdfast does in an acquire. What it does under
// its mutex is one step here; between two steps anything else can happen: a
// goroutine's context ends, a request arrives late or never, an answer is lost.
//
// A goroutine that waits does so until it is woken. The polls that mend a
// missed wake-up are left out but for a few, so that a wake-up that is missed
// shows as an end in which somebody waits.

// caller is one goroutine.
type caller struct {
	Waiter
	at        status
	news      bool   // it was woken
	cancelled bool   // its context has ended
	contact   bool   // the store has answered
	step      step   // what it asks next, as the head
	reply     reply  // on its way to it
	owner     string // of its request under way, or its hold
	hold      int    // of a holder: the caller who took the hold; -1: none
	users     int    // of the one who took the hold: leases of it
}

type status uint8

const (
	idle    status = iota
	behind         // waits for news
	leaving        // only when broken: has seen that it is to give up
	woken          // is the head now
	ready          // the head, about to ask
	calling        // its request is on its way
	replied        // the answer is
	waiting        // in the store's queue
	holding
	ending // has stopped working, and is about to pass the hold on or to release it
	freeing
	done   // has held
	gaveUp // has returned an error
)

type step uint8

const (
	tryOnce step = iota
	enqueue
	await
)

// client is one process.
type client struct {
	gate    Gate
	callers []caller
	order   []int    // callers at the gate in order of arrival, by our own books
	undoing []string // what is being withdrawn in the background
	turn    int      // whose hold may be passed on; -1: none
	left    int      // how often
}

// world is a state.
type world struct {
	store   store
	clients []client
	strays  []request // given up by the client, and still on their way
	losses  int       // messages that may still be lost, beside those of who is cancelled
	polls   int       // polls that may still be made
	ticks   int       // how often a turn may still end because it has lasted long enough
	err     error
}

// model is what is explored, and how it is broken.
type model struct {
	callers  [][]caller // of each client
	losses   int
	polls    int
	passes   int // how often a hold may be passed on
	ticks    int
	maxStray int
	noQueue  bool // the store has none: whoever waits asks again and again

	noWakeLeave   bool // who leaves does not wake the next
	noWakeGrant   bool // who is granted does not wake the next
	noWithdraw    bool // places that the gate gives out are not withdrawn
	anyShape      bool // a place is inherited by whoever is next
	noInherit     bool // a place is withdrawn although the next could have it
	dropGrant     bool // a grant to somebody whose context has ended is dropped
	doubtIsNo     bool // an unknown outcome counts as nothing done
	looksTwice    bool // the role is read in one step and left by in another
	forgetsUndone bool // the store does not remember what was withdrawn
	forgetsFreed  bool // nor what was released
	forgetsTried  bool // tries are not told that the name is held
	staysShut     bool // a release does not open the gate
	frees         bool // what is passed on is released too
	passesToAll   bool // whoever is next gets the hold, whatever he wants
}

func (m *model) explore() explore.Model[*world, string] {
	w := &world{losses: m.losses, polls: m.polls, ticks: m.ticks}
	for _, callers := range m.callers {
		c := client{callers: slices.Clone(callers), turn: -1}
		for i := range c.callers {
			c.callers[i].hold = -1
		}
		w.clients = append(w.clients, c)
	}
	return explore.Model[*world, string]{
		Start: w,
		Key:   func(w *world) string { return string(w.key()) },
		Next:  m.next,
		Check: check,
		End:   end,
	}
}

// clone copies a world; its gates queue the copies of the callers.
func (w *world) clone() *world {
	c := *w
	c.store = w.store.clone()
	c.strays = slices.Clone(w.strays)
	c.clients = slices.Clone(w.clients)
	for i := range c.clients {
		from, to := &w.clients[i], &c.clients[i]
		to.callers = slices.Clone(from.callers)
		to.order = slices.Clone(from.order)
		to.undoing = slices.Clone(from.undoing)
		to.gate.first, to.gate.last, to.gate.tries = nil, nil, 0
		for waiter := range from.gate.Waiters() {
			to.gate.add(&to.callers[from.index(waiter)].Waiter)
		}
	}
	return &c
}

// index returns whose waiter it is.
func (c *client) index(w *Waiter) int {
	return slices.IndexFunc(c.callers, func(in caller) bool { return in.Ref == w.Ref })
}

func (w *world) key() []byte {
	b := w.store.key(make([]byte, 0, 160))
	for i := range w.clients {
		c := &w.clients[i]
		for j := range c.callers {
			a := &c.callers[j]
			b = append(b, byte(a.at)+'a', byte(a.Role), byte(a.step), byte(a.reply), byte(a.hold+1), byte(a.users),
				bits(a.news, a.cancelled, a.contact))
			b = append(append(b, a.owner...), ',')
		}
		for waiter := range c.gate.Waiters() {
			b = append(b, byte(c.index(waiter)))
		}
		b = append(b, '/')
		for _, n := range c.order {
			b = append(b, byte(n))
		}
		b = append(append(b, c.gate.place.Owner...), bits(c.gate.place.Sent, c.gate.told, c.gate.hot, c.gate.shut), byte(c.gate.place.Shape.Mode))
		b = append(b, byte(c.turn+1), byte(c.left))
		b = append(b, c.gate.place.Shape.Note...)
		for _, owner := range c.undoing {
			b = append(b, owner...)
		}
		b = append(b, '|')
	}
	for _, r := range w.strays {
		b = append(append(b, r.owner...), '0'+byte(r.mode), bits(r.queue))
	}
	b = append(b, '|', byte(w.losses), byte(w.polls), byte(w.ticks))
	if w.err != nil {
		b = append(b, w.err.Error()...)
	}
	return b
}

func bits(flags ...bool) (b byte) {
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	return b
}

// next returns every step.
func (m *model) next(w *world) []explore.Step[*world] {
	var steps []explore.Step[*world]
	alive := false
	add := func(who, what string, change func(*world)) {
		alive = alive || what != cancelled
		to := w.clone()
		change(to)
		to.tidy()
		steps = append(steps, explore.Step[*world]{Name: who + " " + what, To: to})
	}
	for i := range w.clients {
		for j := range w.clients[i].callers {
			m.callerSteps(w, i, j, add)
		}
		if w.clients[i].turn >= 0 && w.ticks > 0 {
			add(string(rune('A'+i)), "has had its turn", func(w *world) {
				w.ticks--
				w.clients[i].open()
			})
		}
		for n, owner := range w.clients[i].undoing {
			add(owner, "is withdrawn", func(w *world) {
				w.clients[i].undoing = slices.Delete(w.clients[i].undoing, n, n+1)
				w.store.forget(owner, !m.forgetsUndone)
			})
		}
	}
	for n, r := range w.strays {
		add(r.owner, "arrives late", func(w *world) {
			w.strays = slices.Delete(w.strays, n, n+1)
			w.store.ask(r)
		})
	}
	if !alive && len(steps) > 0 {
		// That its context may end is not what anybody waits for.
		add("everybody", "is patient", func(w *world) { w.err = errStuck })
	}
	return steps
}

const cancelled = "is cancelled"

var errStuck = errors.New("P7: somebody waits, and nobody will wake it")

// tidy forgets what makes no difference any more, so that fewer states differ.
func (w *world) tidy() {
	w.store.farewells = slices.DeleteFunc(w.store.farewells, func(owner string) bool {
		return !slices.ContainsFunc(w.strays, owned(owner))
	})
	for i := range w.clients {
		for j := range w.clients[i].callers {
			a := &w.clients[i].callers[j]
			a.news = a.news && a.at == behind
			if a.at >= holding {
				a.Role, a.cancelled, a.contact, a.step = 0, false, false, 0
			}
			if a.at >= done && a.users == 0 {
				a.owner, a.hold = "", -1
			}
		}
	}
}

// unused returns an owner that nothing knows of. The real ones are never used
// again; here they are, once they are forgotten everywhere, for the same reason.
func (w *world) unused(client string) string {
	for n := 1; ; n++ {
		owner := client + strconv.Itoa(n)
		known := w.store.holding(owner) || w.store.queued(owner) ||
			slices.ContainsFunc(w.strays, owned(owner)) || slices.Contains(w.store.farewells, owner)
		for i := range w.clients {
			c := &w.clients[i]
			known = known || c.gate.place.Owner == owner || slices.Contains(c.undoing, owner) ||
				slices.ContainsFunc(c.callers, func(a caller) bool { return a.owner == owner })
		}
		if !known {
			return owner
		}
	}
}

// check is P1, by the holders' own belief.
func check(w *world) error {
	if w.err != nil {
		return w.err
	}
	exclusive, shared := 0, 0
	owners := map[string]bool{}
	for i := range w.clients {
		for _, a := range w.clients[i].callers {
			if a.at != holding {
				continue
			}
			at := slices.IndexFunc(w.store.holds, owned(a.owner))
			switch {
			case at < 0:
				return errors.New("P1: somebody holds what the store has given to nobody")
			case w.store.holds[at].mode != a.Shape.Mode:
				return errors.New("P1: somebody holds in another way than the store thinks")
			case a.Shape.Mode == driver.Shared:
				shared++
			case owners[a.owner]:
				return errors.New("P1: two hold by one owner")
			default:
				exclusive++
			}
			owners[a.owner] = true
		}
	}
	if exclusive > 1 || exclusive == 1 && shared > 0 {
		return errors.New("P1: somebody holds what another holds exclusively")
	}
	return nil
}

// end is what must be true when nothing can happen any more.
func end(w *world) error {
	if len(w.store.holds)+len(w.store.queue) > 0 {
		return errors.New("P6: the store keeps something for nobody")
	}
	for i := range w.clients {
		c := &w.clients[i]
		for _, a := range c.callers {
			if a.at < done {
				return errStuck
			}
		}
		if !c.gate.Empty() || c.turn >= 0 || c.gate.place != (Place{}) || len(c.order) > 0 {
			return errors.New("P9: the gate is not empty")
		}
	}
	return nil
}

// callers makes the goroutines of one client. Each is a mode and a note: "x"
// and "y" are exclusive, of two shapes, "s" is shared, "t" a try of the shape
// of "x".
func callers(client string, kinds string) (list []caller) {
	for i, kind := range kinds {
		c := caller{}
		c.Ref = fmt.Sprintf("%s%c%d", client, kind, i)
		switch kind {
		case 'y':
			c.Shape.Note = "y"
		case 's':
			c.Shape.Mode = driver.Shared
		case 't':
			c.Try = true
		}
		list = append(list, c)
	}
	return list
}

// sites makes the goroutines of several clients.
func sites(kinds string) (all [][]caller) {
	for i, k := range strings.Split(kinds, ",") {
		all = append(all, callers(string(rune('A'+i)), k))
	}
	return all
}

// TestModel explores everything that can happen around the gates.
func TestModel(t *testing.T) {
	for _, c := range []struct {
		kinds         string // of the clients' goroutines
		losses, polls int
	}{
		{"xx,x", 1, 0}, // the same name, two clients
		{"xx,xx", 0, 0},
		{"ss,x", 1, 0}, // shared neighbours
		{"xt,x", 0, 0}, // a try
		{"xxx", 1, 1},
		{"xyx", 1, 1}, // shapes that differ
		{"xsx", 1, 0},
		{"sxs", 1, 0},
		{"xtx", 1, 1},
	} {
		t.Run(c.kinds, func(t *testing.T) {
			m := model{callers: sites(c.kinds), losses: c.losses, polls: c.polls, maxStray: c.losses}
			m.explore().Holds(t, 100_000)
		})
	}
}

// TestModelPassing is the same with holds that are passed on inside a client.
func TestModelPassing(t *testing.T) {
	for _, c := range []struct {
		kinds                 string
		passes, losses, ticks int
	}{
		{"xxx", 1, 1, 0},
		{"xxx", 2, 0, 2},
		{"xx,x", 1, 0, 1},
		{"xx,xx", 1, 0, 0},
		{"xyx", 2, 0, 1},
		{"xsx", 2, 0, 1},
		{"xtx", 2, 1, 1},
	} {
		t.Run(c.kinds, func(t *testing.T) {
			m := model{callers: sites(c.kinds), losses: c.losses, maxStray: c.losses, passes: c.passes, ticks: c.ticks}
			m.explore().Holds(t, 100_000)
		})
	}
}

// TestModelWithoutQueue is the same for a store that has no queue.
func TestModelWithoutQueue(t *testing.T) {
	for _, kinds := range []string{"x,x", "xs", "xt"} {
		t.Run(kinds, func(t *testing.T) {
			m := model{callers: sites(kinds), losses: 1, maxStray: 1, noQueue: true}
			m.explore().Holds(t, 100_000)
		})
	}
}

// TestModelLarge goes some random ways through what is too large to explore.
func TestModelLarge(t *testing.T) {
	for _, passes := range []int{0, 3} {
		m := model{callers: sites("xxysst,sxxtxy,xsxs"), losses: 4, polls: 4, maxStray: 2, passes: passes, ticks: 4}
		m.explore().Walks(t, 100, 1000)
	}
}

// TestModelFinds: the checks find each way in which a gate, or what is done with
// what it says, could be wrong.
func TestModelFinds(t *testing.T) {
	for _, c := range []struct {
		name, want string
		kinds      string
		broken     func(*model)
	}{
		{"the next is not woken by who leaves", "P7", "xx", func(m *model) { m.noWakeLeave = true }},
		{"the next is not woken by who is granted", "P7", "xx", func(m *model) { m.noWakeGrant = true }},
		{"tries are not refused", "P7", "xt,x", func(m *model) { m.forgetsTried = true }},
		{"a place is not withdrawn", "P6", "x,x", func(m *model) { m.noWithdraw = true }},
		{"a grant that comes too late is dropped", "P6", "xx", func(m *model) { m.dropGrant = true }},
		{"an unknown outcome is taken for a no", "P6", "x", func(m *model) { m.doubtIsNo = true }},
		{"the role is read before leaving", "P6", "ss", func(m *model) { m.looksTwice = true }},
		{"a place goes to another shape", "P1", "xs,x", func(m *model) { m.anyShape = true }},
		{"a place is not passed on", "P8", "xx,x", func(m *model) { m.noInherit = true }},
		{"the store forgets what was withdrawn", "P6", "x", func(m *model) { m.forgetsUndone = true }},
		{"a release leaves the gate shut", "P7", "xxx", func(m *model) { m.passes, m.staysShut = 1, true }},
		{"a hold is passed on and released", "P1", "xx,x", func(m *model) { m.passes, m.frees = 1, true }},
		{"a hold is passed on to another shape", "P1", "xs", func(m *model) { m.passes, m.passesToAll = 1, true }},
		{"the store forgets what was released", "P6", "xx,x", func(m *model) { m.forgetsFreed = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := model{callers: sites(c.kinds), losses: 1, maxStray: 1}
			c.broken(&m)
			m.explore().Breaks(t, 60_000, c.want)
		})
	}
}
