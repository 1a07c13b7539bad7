package drivertest

var sharedCases = []testCase{
	{name: "readers together", need: needs{Shared: true}, run: readersTogether},
	{name: "readers keep a writer out", need: needs{Shared: true}, run: readersKeepWriterOut},
	{name: "a writer keeps readers out", need: needs{Shared: true}, run: writerKeepsReadersOut},
	{name: "expiry of one reader leaves the others", need: needs{Shared: true}, time: true,
		run: oneReaderExpires},
}

func readersTogether(t *trial) {
	a, b := t.open(), t.open()
	t.take(a, t.shared())
	t.take(a, t.shared())
	t.take(b, t.shared())
}

func readersKeepWriterOut(t *trial) {
	a, b := t.open(), t.open()
	g1, g2 := t.take(a, t.shared()), t.take(b, t.shared())
	t.refused(b, t.request(), "P1: an exclusive hold was granted beside two shared ones")
	t.release(a, g1)
	t.refused(a, t.request(), "P1: an exclusive hold was granted beside a shared one")
	t.release(b, g2)
	t.freeNow(a, t.request(), "P4: the last reader's release did not free the name")
}

func writerKeepsReadersOut(t *trial) {
	a, b := t.open(), t.open()
	g := t.take(a, t.request())
	t.refused(b, t.shared(), "P1: a shared hold was granted beside an exclusive one")
	t.release(a, g)
	t.freeNow(b, t.shared(), "P4: the writer's release did not let a reader in")
}

func oneReaderExpires(t *trial) {
	a, b := t.open(), t.open()
	brief := t.shared()
	brief.TTL = t.ttl
	t.take(a, brief)
	stays := t.shared()
	stays.TTL = max(t.long, 10*t.ttl)
	g := t.take(b, stays)
	t.outlive(t.ttl)
	t.refused(a, t.request(), "P1: the expiry of one reader let a writer in beside another")
	t.renew(b, g)
	t.release(b, g)
	t.freeNow(a, t.request(), "P5: an expired reader still keeps a writer out")
}
