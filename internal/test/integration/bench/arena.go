package bench

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// arena is in memory that all processes of a measurement share: it says whether a worker is
// in its critical section, and which was in one last.
type arena struct {
	stage             atomic.Int32 // of the measurement: see below
	ready             atomic.Int32 // processes whose clients are open
	asking            atomic.Int32 // workers that have begun to ask
	inside, last      atomic.Int32 // the worker's id
	holds             atomic.Int64 // in all stages
	changes, overlaps atomic.Int64
	between           atomic.Int64 // changes from a worker of one process to one of another
	left              atomic.Int64 // when the last worker left, in ns since 1970
	_                 [64]byte
}

// The stages of a measurement. The process that has started the others moves the stage on.
const (
	preparing int32 = iota
	warming
	measured
	over
)

// openArena opens the memory of a file, and makes the file if it is not there.
func openArena(file string) (*arena, error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(arena{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*arena)(unsafe.Pointer(unsafe.SliceData(memory))), nil
}

// enter runs one critical section, which takes as long as stay, and checks that no other
// worker is in one. If the worker before was another one, it returns how long nobody was in
// a critical section in between; else 0.
func (a *arena) enter(worker int32, stay time.Duration) (gap time.Duration) {
	if left := a.left.Load(); left != 0 {
		gap = time.Duration(time.Now().UnixNano() - left)
	}
	if !a.inside.CompareAndSwap(0, 1) {
		a.overlaps.Add(1)
	}
	if before := a.last.Swap(worker); before == worker {
		gap = 0
	} else if a.stage.Load() == measured {
		a.changes.Add(1)
		if before>>16 != worker>>16 {
			a.between.Add(1)
		}
	}
	if stay > 0 {
		time.Sleep(stay)
	}
	a.inside.Store(0)
	a.left.Store(time.Now().UnixNano())
	return gap
}
