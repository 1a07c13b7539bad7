package drivertest

var slotsCases = []testCase{
	{name: "permits are counted", need: needs{Slots: true}, run: permitsCounted},
	{name: "release gives all permits back", need: needs{Slots: true}, run: permitsGivenBack},
	{name: "one slot is a mutex", need: needs{Slots: true}, run: oneSlot},
	{name: "expiry gives permits back", need: needs{Slots: true}, time: true, run: permitsExpire},
}

func permitsCounted(t *trial) {
	a, b := t.open(), t.open()
	t.take(a, t.slot(3, 2))
	t.refused(b, t.slot(3, 2), "P1: a semaphore of 3 gave 2 permits twice")
	t.take(b, t.slot(3, 1))
	t.refused(a, t.slot(3, 1), "P1: a semaphore of 3 gave a fourth permit")
}

func permitsGivenBack(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.slot(4, 3))
	small := t.take(b, t.slot(4, 1))
	t.release(a, g)
	g = t.take(b, t.slot(4, 3))
	t.refused(a, t.slot(4, 1), "P1: a semaphore of 4 gave a fifth permit after a release")
	t.release(b, small)
	t.refused(a, t.slot(4, 2), "P1: a semaphore of 4 gave a fifth permit after the release of one")
	t.release(b, g)
	t.freeNow(a, t.slot(4, 4), "P4: a semaphore is not whole after every release")
}

func oneSlot(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.slot(1, 1))
	t.refused(b, t.slot(1, 1), "P1: a semaphore of 1 has two holders")
	t.release(a, g)
	t.freeNow(b, t.slot(1, 1), "P4: a released slot is not free")
}

func permitsExpire(t *trial) {
	a, b := t.open(), t.open()
	brief := t.slot(3, 2)
	brief.TTL = t.ttl
	t.take(a, brief)
	stays := t.slot(3, 1)
	stays.TTL = max(t.long, 10*t.ttl)
	t.take(b, stays)
	t.outlive(t.ttl)
	t.freeNow(b, t.slot(3, 2), "P5: permits of a dead holder did not come back")
	t.refused(a, t.slot(3, 3), "P1: the expiry of one holder gave away another's permits")
}
