package bench

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// arena is memory that processes share: who is inside, and who was last.
type arena struct {
	ready, inside, last atomic.Int32
	stage               atomic.Int32 // what the workers do: see below
	changes, overlaps   atomic.Int64
	_                   [64]byte
}

// Stages of a hot name.
const (
	preparing int32 = iota
	warming
	measured
	over
)

// newArena makes the file of an arena.
func newArena(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(int64(unsafe.Sizeof(arena{})))
}

func openArena(file string) (*arena, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, int(unsafe.Sizeof(arena{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*arena)(unsafe.Pointer(unsafe.SliceData(memory))), nil
}

// turn is one critical section of a worker: it does nothing but look.
func (a *arena) turn(worker int32) {
	if !a.inside.CompareAndSwap(0, 1) {
		a.overlaps.Add(1)
	}
	if a.last.Swap(worker) != worker && a.stage.Load() == measured {
		a.changes.Add(1)
	}
	a.inside.Store(0)
}
