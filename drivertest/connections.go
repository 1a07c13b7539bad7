package drivertest

import "time"

// connectionsCases count the connections of a client to its store.
var connectionsCases = []testCase{
	{name: "connections do not grow with holds", run: holdsAndConnections},
	{name: "close ends the connections", run: closeEndsConnections},
}

func holdsAndConnections(t *trial) {
	d, wire := t.wired()
	before := 0
	for i := range many {
		if i == few {
			before = wire.Connections()
		}
		t.take(d, t.elsewhere())
	}
	if now := wire.Connections(); now-before >= (many-few)/2 {
		t.Errorf("P9: %d more holds are %d more connections", many-few, now-before)
	}
}

func closeEndsConnections(t *trial) {
	d, wire := t.h.Transport(t.TB)
	g, err := d.Try(t.ctx, t.request())
	if err != nil {
		t.Fatalf("P7: Try of a free name: %v", err)
	}
	t.release(d, g)
	if err := d.Close(); err != nil {
		t.Errorf("P9: Close: %v", err)
	}
	for end := time.Now().Add(t.slack); wire.Connections() > 0; time.Sleep(t.tick()) {
		if time.Now().After(end) {
			t.Fatalf("P9: %d connections are left after Close", wire.Connections())
		}
	}
}
