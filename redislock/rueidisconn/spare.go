package rueidisconn

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// spare is a client that is opened in the background when it is first wanted.
// Safe for concurrent use.
type spare struct {
	option rueidis.ClientOption
	client atomic.Pointer[rueidis.Client] // nil: not open
	opens  sync.WaitGroup

	mu      sync.Mutex
	opening bool
	failed  time.Time // when it could not be opened
	closed  bool
}

// spareRetry is the least time between two failed attempts to open it.
const spareRetry = time.Second

// get returns the client, or nil if it is not open yet.
func (s *spare) get() rueidis.Client {
	if client := s.client.Load(); client != nil {
		return *client
	}
	s.open()
	return nil
}

func (s *spare) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening || s.closed || s.client.Load() != nil || time.Since(s.failed) < spareRetry {
		return
	}
	s.opening = true
	s.opens.Go(func() {
		client, err := rueidis.NewClient(s.option)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opening = false
		switch {
		case err != nil:
			s.failed = time.Now()
		case s.closed:
			client.Close()
		default:
			s.client.Store(&client)
		}
	})
}

// drop closes the client, which is opened again when it is wanted.
func (s *spare) drop() {
	if client := s.client.Swap(nil); client != nil {
		(*client).Close()
	}
}

// close ends it for good.
func (s *spare) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.opens.Wait()
	s.drop()
}
