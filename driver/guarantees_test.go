package driver

import "testing"

// TestCommonFaults: a store's own verdict counts, and no fault that befalls servers has one by itself.
func TestCommonFaults(t *testing.T) {
	own := Verdict{Impossible, Impossible, "one process"}
	all := CommonFaults(map[Fault]Verdict{Partition: own})
	if all[Partition] != own || all[ClientPause].Exclusion != Breaks {
		t.Errorf("the verdicts are %v", all)
	}
	for _, f := range []Fault{StoreRestart, StoreWiped, Failover, ClockForward, ClockBack, DiskFull} {
		if all[f] != (Verdict{}) {
			t.Errorf("%s has the verdict %v", f, all[f])
		}
	}
}
