package memlock

import "context"

// Watch implements driver.Watcher: every operation on the name is a hint.
func (c *client) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := c.alive(ctx); err != nil {
		return nil, err
	}
	s, hints := c.store, make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[name] == nil {
		s.watches[name] = map[chan struct{}]struct{}{}
	}
	s.watches[name][hints] = struct{}{}
	go func() {
		select {
		case <-ctx.Done():
		case <-c.closed:
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches[name], hints)
		if len(s.watches[name]) == 0 {
			delete(s.watches, name)
		}
		close(hints)
	}()
	return hints, nil
}

// hint tells the watchers of a name that it may have changed.
func (s *Store) hint(name string) {
	for hints := range s.watches[name] {
		select {
		case hints <- struct{}{}:
		default: // there is one already
		}
	}
}
