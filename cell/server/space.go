package server

import (
	"fmt"
	"time"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// etcd ends itself when it cannot write its log, and takes no more changes when its file has grown to its
// quota. So a member lets nobody have anything new long before: what is there goes on, and is given back.

// DefaultReserve is how much of the disk a member leaves free that was not told, in bytes. etcd sets 64 MiB
// aside for its log at a time.
const DefaultReserve = 256 << 20

// backendQuota is how large etcd's file may become, and mostOfQuota how large while members still let
// sessions have something new, in bytes.
const (
	backendQuota = 2 << 30
	mostOfQuota  = backendQuota / 10 * 9
)

// lookForSpace is how often a member looks at its disk.
const lookForSpace = time.Second

// watchSpace sees to it that nobody gets anything new while there is not enough space.
func (m *Member) watchSpace() {
	look := func() { m.front.noSpace(m.shortage()) }
	look()
	m.front.each(lookForSpace, look)
}

// shortage says what there is too little of; "": nothing.
func (m *Member) shortage() string {
	if size := m.etcd.Server.Backend().Size(); size > mostOfQuota {
		return fmt.Sprintf("the file of member %s has %d MiB and may have %d: delete files, and start it again: that makes its file small", m.config.Name, size>>20, backendQuota>>20)
	}
	if free, known := freeSpace(m.config.Data); known && free < m.reserve.Load() {
		return fmt.Sprintf("the disk of member %s has %d MiB left, and %d are a reserve: make room on it", m.config.Name, free>>20, m.reserve.Load()>>20)
	}
	return ""
}

// noSpace notes what there is too little of.
func (f *front) noSpace(shortage string) {
	switch was := *f.shortage.Swap(&shortage); {
	case was == "" && shortage != "":
		f.log.Error("nobody gets anything new", "reason", shortage)
	case was != "" && shortage == "":
		f.log.Info("there is space again")
	}
}

// hasSpace returns an error if there is no space for anything new.
func (f *front) hasSpace() error {
	if s := *f.shortage.Load(); s != "" {
		return refuse(cellv1.Reason_REASON_REFUSED, "%s", s)
	}
	return nil
}
