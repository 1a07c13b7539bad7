//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import "github.com/holdfastlock/holdfast/driver"

// oneHost is the verdict on what cannot befall a store that is the host of all
// its holders.
var oneHost = driver.Verdict{
	Exclusion: driver.Impossible, Tokens: driver.Impossible,
	Note: "the store is the kernel of the holders' own host",
}

var guarantees = driver.Guarantees{
	Summary: "Files on one host: the kernel's flock, CLOCK_BOOTTIME, and files that nobody else changes. Outside Linux the wall clock takes the place of CLOCK_BOOTTIME.",
	Tokens:  "Microseconds of CLOCK_BOOTTIME since an epoch that is fixed at the first use after a boot, by the wall clock: setting the wall clock does not matter until the next boot.",
	Faults: driver.CommonFaults(map[driver.Fault]driver.Verdict{
		driver.ClientCrash: {
			Exclusion: driver.Keeps, Tokens: driver.Keeps,
			Note: "the kernel frees the flock of a killed process: its holds end at once, or after their lock-delay or minimum hold",
		},
		driver.ClientSuspend: {
			Exclusion: driver.Keeps, Tokens: driver.Keeps,
			Note: "store and leases count suspended time by the same clock",
		},
		driver.Partition:   oneHost,
		driver.LateReplies: oneHost,
		driver.StorePause:  oneHost,
		driver.Failover:    oneHost,
		driver.StoreRestart: {
			Exclusion: driver.Keeps, Tokens: driver.Breaks,
			Note: "a reboot of the host ends all holders, and lock-delays and minimum holds start again, as far as the disk has the records: they are not synced. Tokens can go back only if the wall clock is behind the last boot's: set the clock before locks are used",
		},
		driver.StoreWiped: {
			Exclusion: driver.Breaks, Tokens: driver.Keeps,
			Note: "whoever deletes the directory, or files in it, frees what is held there; holders notice at their next renewal, and their clients must be opened again. Tokens go on from the wall clock",
		},
		driver.ClockForward: {
			Exclusion: driver.Keeps, Tokens: driver.Keeps,
			Note: "the clock used cannot be set; outside Linux it can, and holds may then end early",
		},
		driver.ClockBack: {
			Exclusion: driver.Keeps, Tokens: driver.Keeps,
			Note: "the clock used cannot be set; outside Linux it can, and holds may then end late",
		},
		driver.DiskFull: {
			Exclusion: driver.Delays, Tokens: driver.Keeps,
			Note: "a change that does not fit is refused with an error and changes nothing",
		},
	}),
}
