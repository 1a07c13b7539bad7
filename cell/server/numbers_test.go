//go:build soak

package server

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestNumbersOfWrites: each of many writes at the same time returns its own numbers. A client with
// another's numbers would take the other's contents for its own, and write over them.
func TestNumbersOfWrites(t *testing.T) {
	a := dial(start(t))
	var mu sync.Mutex
	of := map[int64]string{} // what was written, by generation
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := range 50 {
				contents := fmt.Sprint("writer ", w, ", ", i)
				n, err := a.write(t, "n", contents, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if other, taken := of[n.ContentGeneration]; taken {
					t.Errorf("generation %d is returned for %q and for %q", n.ContentGeneration, other, contents)
				}
				of[n.ContentGeneration] = contents
				mu.Unlock()
				if n.Checksum != checksum([]byte(contents)) || int(n.Size) != len(contents) {
					t.Errorf("for %q the size %d and the checksum of other contents are returned", contents, n.Size)
				}
			}
		})
	}
	writers.Wait()
}

// TestNumbersOfRights: each of many changes of rights at the same time returns its own numbers.
func TestNumbersOfRights(t *testing.T) {
	a := dial(start(t))
	a.mustWrite(t, "n", "")
	var mu sync.Mutex
	of := map[int64]string{} // the list of readers, by generation
	var changers sync.WaitGroup
	for c := range 8 {
		changers.Go(func() {
			for i := range 25 {
				list := fmt.Sprint("list", c, "-", i)
				r, err := a.files.SetACL(t.Context(), &cellv1.SetACLRequest{Path: "n", Acl: &cellv1.ACL{Read: list}})
				if err != nil {
					t.Error(err)
					return
				}
				n := r.Node
				mu.Lock()
				if other, taken := of[n.AclGeneration]; taken || n.Acl.Read != list {
					t.Errorf("generation %d is returned for %q and for %q, with %q", n.AclGeneration, other, list, n.Acl.Read)
				}
				of[n.AclGeneration] = list
				mu.Unlock()
			}
		})
	}
	changers.Wait()
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
