//go:build soak

package faulttest

import (
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// TestRollingRestart tells one member after the other to stop, and starts it again. They wait so long before
// an election that one would show: a leader gives the leadership away before it stops, what others had sent to
// it is sent to the next one soon, and clients go to other members before theirs has ended. So no name stands
// still as long as it would take to elect a leader, or to give up a request that was lost.
func TestRollingRestart(t *testing.T) {
	const election, still = 4 * time.Second, 3 * time.Second
	c := startThree(t, testserver.CellOptions{Election: election})
	closed := closeNames(t, c.Addrs())
	crowd := startCrowd(t, 2, settings{
		URL: url(c.addrs), Group: "own", Keepers: 10, KeptTTL: keptTTL, Users: 10, Names: 5, UsedTTL: 2 * election,
		Fenced: true, Writes: 2, Watches: true,
	})
	witness := client(t, c.Addrs())
	crowd.tell("served")
	crowd.judge()
	for _, m := range c.Members {
		led := c.Leader() == m
		began := time.Now()
		m.Stop()
		stopped := time.Since(began)
		crowd.tell("served")
		served := time.Since(began)
		m.Start()
		crowd.tell("served")
		crowd.settled(witness)
		closed.check(t, witness)
		v := crowd.judge()
		if v.longest >= still {
			t.Errorf("a name stood still for %v: as if the leadership had not been given away", v.longest)
		}
		t.Logf("led: %v; it stopped within %v, and everybody had been served by %v; %v; %s", led, stopped, served, v, crowd.files.judge(t))
	}
	crowd.tell("end")
	crowd.judge()
}
