package memlock

import "github.com/holdfastlock/holdfast/driver"

// same is the verdict on what cannot befall a store in the holders' own
// process.
var same = driver.Verdict{
	Exclusion: driver.Impossible, Tokens: driver.Impossible,
	Note: "store and holders are one process",
}

var guarantees = driver.Guarantees{
	Summary: "The memory of one process; nothing outside it is excluded.",
	Tokens:  "A counter that lives as long as the store.",
	Faults: driver.CommonFaults(map[driver.Fault]driver.Verdict{
		driver.ClientCrash: same,
		driver.ClientSuspend: {
			Exclusion: driver.Keeps, Tokens: driver.Keeps,
			Note: "store and leases count suspended time by the same clock",
		},
		driver.Partition:    same,
		driver.LateReplies:  same,
		driver.StorePause:   same,
		driver.StoreRestart: same,
		driver.StoreWiped:   same,
		driver.Failover:     same,
		driver.ClockForward: {
			Exclusion: driver.Impossible, Tokens: driver.Impossible,
			Note: "the clock used cannot be set",
		},
		driver.ClockBack: {
			Exclusion: driver.Impossible, Tokens: driver.Impossible,
			Note: "the clock used cannot be set",
		},
		driver.DiskFull: same,
	}),
}
