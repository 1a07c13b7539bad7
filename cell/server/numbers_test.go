//go:build soak

package server

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestNumbersOfWrites: each of many writes, and of many changes of rights, at the same time returns its own numbers. A
// client with another's numbers would take the other's contents for its own, and write over them.
func TestNumbersOfWrites(t *testing.T) {
	a := dial(start(t))
	a.mustWrite(t, "n", "")
	for what, write := range map[string]func(text string) (generation int64, own bool, err error){
		"contents": func(text string) (int64, bool, error) {
			n, err := a.write(t, "n", text, nil)
			return n.GetContentGeneration(), n.GetChecksum() == checksum([]byte(text)) && int(n.GetSize()) == len(text), err
		},
		"rights": func(text string) (int64, bool, error) {
			r, err := a.files.SetACL(t.Context(), &cellv1.SetACLRequest{Path: "n", Acl: &cellv1.ACL{Read: text}})
			return r.GetNode().GetAclGeneration(), r.GetNode().GetAcl().GetRead() == text, err
		},
	} {
		var mu sync.Mutex
		of := map[int64]string{} // what was written, by generation
		var writers sync.WaitGroup
		for w := range 8 {
			writers.Go(func() {
				for i := range 25 {
					text := fmt.Sprint("writer", w, "-", i)
					generation, own, err := write(text)
					if err != nil {
						t.Errorf("%s: %v", what, err)
						return
					}
					mu.Lock()
					if other, taken := of[generation]; taken || !own {
						t.Errorf("%s: for %q the numbers of others are returned, with generation %d, that of %q", what, text, generation, other)
					}
					of[generation] = text
					mu.Unlock()
				}
			})
		}
		writers.Wait()
	}
}

// TestNumbersOfNodes: where nodes come and go under a path, contents are read with the number of their own node, and
// who has made a node is told its number although it is gone again.
func TestNumbersOfNodes(t *testing.T) {
	a := dial(start(t))
	var mu sync.Mutex
	made, read := map[string]int64{}, map[string]int64{} // instances, by contents
	var makers, readers sync.WaitGroup
	done := make(chan struct{})
	for m := range 16 {
		makers.Go(func() {
			for i := range 50 {
				contents := fmt.Sprint("maker ", m, ", ", i)
				n, err := a.write(t, "n", contents, func(r *cellv1.PutRequest) { r.IfGeneration = new(int64) })
				if err == nil {
					mu.Lock()
					made[contents] = n.Instance
					mu.Unlock()
				} else if reasonOf(err) != cellv1.Reason_REASON_CHANGED {
					t.Errorf("making a node: %v", err)
				}
				_, err = a.files.Delete(t.Context(), &cellv1.DeleteRequest{Path: "n"})
				if err != nil && reasonOf(err) != cellv1.Reason_REASON_NO_NODE {
					t.Errorf("removing a node: %v", err)
				}
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if n, contents, err := a.read(t, "n"); err == nil {
					mu.Lock()
					read[contents] = n.Instance
					mu.Unlock()
				}
			}
		})
	}
	makers.Wait()
	close(done)
	readers.Wait()
	for contents, instance := range read {
		if made[contents] != instance {
			t.Errorf("%q was written to node %d, and is read as that of %d", contents, made[contents], instance)
		}
	}
}
