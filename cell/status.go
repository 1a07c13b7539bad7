package cell

import (
	"context"
	"sync"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// MemberStatus is what a member says of itself and of the cell.
type MemberStatus struct {
	Address string                 // as in Config.Members
	Status  *cellv1.StatusResponse // nil: it does not answer
	Err     error                  // why
}

// Statuses asks all members that the configuration names, at the same time, in its order. It returns when
// all have answered, or the context ends. Safe for concurrent use.
func (c *Client) Statuses(ctx context.Context) []MemberStatus {
	said := make([]MemberStatus, len(c.members))
	var all sync.WaitGroup
	for i, m := range c.members {
		all.Go(func() {
			s := &said[i]
			s.Address = m.Address
			r, err := m.Cell.Status(ctx, &cellv1.StatusRequest{})
			if s.Err = err; err == nil {
				s.Status = r
			}
		})
	}
	all.Wait()
	return said
}
