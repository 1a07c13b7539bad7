package sqllock

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueue lets random tickets in, one at a time: always the most urgent, and of
// equals the first.
func TestQueue(t *testing.T) {
	q := &queue{room: 1}
	first := &ticket{}
	if !q.enter(first) {
		t.Fatal("an empty queue lets nobody in")
	}
	var order, want []int
	tickets := map[int]*ticket{}
	urgency := func(i int) priority { return tickets[i].priority }
	for i := range 100 {
		tickets[i] = &ticket{priority: priority(rand.N(int(priorities))), admitted: func() { order = append(order, i) }}
		if q.enter(tickets[i]) {
			t.Fatal("two are inside where there is room for one")
		}
		want = append(want, i)
	}
	for i := 0; i < len(want); i += 7 { // some give up
		q.leave(tickets[want[i]])
		want = slices.Delete(want, i, i+1)
	}
	slices.SortStableFunc(want, func(a, b int) int { return int(urgency(a)) - int(urgency(b)) })
	q.leave(first)
	for range want {
		q.leave(tickets[order[len(order)-1]])
	}
	if !slices.Equal(order, want) {
		t.Errorf("they were let in as %v, not as %v", order, want)
	}
	if q.inside != 0 {
		t.Errorf("%d are inside an empty queue", q.inside)
	}
}

func TestQueueRoom(t *testing.T) {
	q := &queue{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.wait(ctx, &ticket{}); err != context.Canceled {
		t.Errorf("wait in a queue without room returned %v", err)
	}
	admitted := 0
	for range 3 {
		q.enter(&ticket{admitted: func() { admitted++ }})
	}
	q.setRoom(2)
	if admitted != 2 {
		t.Errorf("%d of 3 are let in where there is room for 2", admitted)
	}
	late := &ticket{priority: renewing}
	q.leave(late)
	if q.enter(late) || q.isInside(late) {
		t.Error("a ticket that gave up before it entered is let in")
	}
}
