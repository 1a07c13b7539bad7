//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastlock/holdfast/driver"
)

// A boot of the host ends all holders, and instants of another boot mean nothing. So each record says
// of which boot it is (state.boot), and whoever reads one of another boot brings it to this one (adopt).
// The first client after a boot also makes a file with the boot's number, which fixes the epoch of the
// tokens for as long as the host runs (P3).

func bootText(epoch int64) string { return fmt.Sprintf("%sboot epoch %d\n", magic, epoch) }

// parseBoot returns the epoch, in nanoseconds, and errDamaged for what a power cut may have left.
func parseBoot(text string) (epoch int64, err error) {
	n, _ := fmt.Sscanf(text, magic+"boot epoch %d\n", &epoch)
	if n != 1 || bootText(epoch) != text || epoch > maxInstant || epoch < -maxInstant {
		return 0, errDamaged
	}
	return epoch, nil
}

func bootFile(id uint64) string { return fmt.Sprintf("%s%016x", bootPrefix, id) }

// begin reads the epoch. At the first use after a boot it fixes the epoch, for all clients of this boot:
// a file that another client has made meanwhile counts.
func (s *store) begin(p *place, now driver.Instant) error {
	file := bootFile(s.boot)
	for {
		text, err := p.top.read(file)
		if err == nil {
			s.epoch, err = parseBoot(string(text))
			return explain(err, "", p.top.at(file))
		}
		if !os.IsNotExist(err) {
			return explain(err, "", p.top.at(file))
		}
		names, err := p.top.names()
		if err != nil {
			return explain(err, "", p.top.path)
		}
		clients, err := p.clients.names()
		if err != nil {
			return explain(err, "", p.clients.path)
		}
		live := slices.ContainsFunc(clients, func(id string) bool { return validID(id) && p.alive(id) })
		epoch := time.Now().UnixNano() - int64(now)
		others := names[:0]
		for _, name := range names {
			if !strings.HasPrefix(name, bootPrefix) || name == file {
				continue
			}
			others = append(others, name)
			if text, err := p.top.read(name); err == nil {
				if then, err := parseBoot(string(text)); err == nil {
					epoch = max(epoch, then+1) // also if the wall clock starts wrong
				}
			}
		}
		if !live {
			s.removeTorn(p)
		} else if _, err := p.top.read(file); err != nil && len(others) > 0 { // nobody of this boot has come meanwhile
			return fmt.Errorf("%s: %w", p.top.path, errOtherBoot)
		}
		if err := p.top.publish(file, []byte(bootText(epoch))); err != nil {
			return explain(err, "", p.top.at(file))
		}
		for _, name := range others {
			if p.top.proveContent(name) == nil {
				p.top.root.Remove(name)
			}
		}
	}
}

// removeTorn deletes the records that cannot be read. It is called at the first use after a boot, while
// no process has the directory in use: a power cut has torn them. Who comes meanwhile has them locked.
func (s *store) removeTorn(p *place) {
	names, _ := p.names.names()
	m := newMemory(s)
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		f, err := openRecord(p.names, name, os.O_RDWR)
		if err != nil {
			continue // whoever uses the name is told
		}
		if flock(f.fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			err := f.load(m)
			if err == nil && f.head.state == settled {
				_, err = f.parse(m)
			}
			if errors.Is(err, errDamaged) && p.names.proveRecord(name) == nil {
				p.remove(f)
			}
		}
		f.close()
	}
}

var errOtherBoot = errors.New("in use on another boot: the processes run on different hosts, or in containers that are shown different boot ids")

// adopt makes a record one of this boot. Where a client of the other boot lives, the two are different
// hosts, or are shown different boot ids, and nobody must take what the other holds (P1).
func (p *place) adopt(st *state, this uint64, now driver.Instant) error {
	if st.boot == this {
		return nil
	}
	var clients []string
	for i := range st.Holds {
		clients = append(clients, st.Holds[i].Client)
	}
	for i := range st.Queue {
		clients = append(clients, st.Queue[i].Client)
	}
	if slices.ContainsFunc(clients, func(id string) bool { return id != "" && p.alive(id) }) {
		return errOtherBoot
	}
	st.boot = this
	st.reboot(now)
	return nil
}

// reboot closes what was held for its lock-delay or its minimum hold, counted from now, and drops the
// rest. What was closed already stays so for its delay in full: how much of it has passed is not known.
func (s *state) reboot(now driver.Instant) {
	kept := s.Holds[:0]
	for _, h := range s.Holds {
		delay := h.LockDelay
		if !h.Claim {
			delay = max(delay, h.MinHold)
		}
		if delay > 0 {
			h.Closed, h.Owner, h.Client, h.Expires = true, "", "", now.Add(delay)
			kept = append(kept, h)
		}
	}
	s.Holds, s.Queue, s.broken = kept, nil, nil
}
