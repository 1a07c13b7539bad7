package console

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

const (
	// usualPace is the shortest time between two reads of a store.
	usualPace = time.Second
	// rest is how long a store is left alone after a read, as a multiple of the time that the read took.
	rest = 4
	// readWithin bounds one read of a store.
	readWithin = 10 * time.Second
	// mostNames is how many names a console shows at most.
	mostNames = 100_000
	// mostEnded is how many lost and broken holds a console remembers.
	mostEnded = 100
)

// feed reads one store for all browsers: once at a time, and only while a browser waits for news.
type feed struct {
	Store
	life context.Context
	pace time.Duration

	mu      sync.Mutex
	now     *snapshot     // the zero snapshot before the first read
	reading chan struct{} // closed when the next read has ended; nil: nobody waits for one
	begun   bool          // that read has begun
	next    time.Time     // before then the store is not read
	ended   []ending      // the newest first

	doctoring sync.Mutex
	found     examination // by the doctor, the last time
}

// snapshot is what one read has shown. It does not change.
type snapshot struct {
	generation  int // 1 for that of the first read
	begun, read time.Time
	infos       []holdfast.Info // by name
	more        bool            // the store has more than mostNames
	holds       map[holdID]hold
	err         error // of the last read; the rest is of the last one that succeeded
}

// holdID tells holds apart.
type holdID struct{ name, owner string }

// hold is what successive reads have shown of one hold.
type hold struct {
	driver.Holder
	since time.Time     // the zero time: the store does not know
	most  time.Duration // the longest TTL left of all reads
}

// late reports whether a hold has not been renewed for longer than a holder that is well lets pass: it renews each third
// of the TTL, and less than half is left.
func (h hold) late() bool { return h.Expires > 0 && h.Expires < h.most/2 }

// ending is a hold that was lost or broken.
type ending struct {
	Name   string
	Holder driver.Holder
	At     time.Time
	Broken bool // by this console; else its TTL has run out
}

// after returns the first snapshot whose generation is higher, and the holds that have ended until then. It reads the store
// if nobody does. A generation of an earlier console counts as the next one. The error is that of a context.
func (f *feed) after(ctx context.Context, generation int) (*snapshot, []ending, error) {
	for first := true; ; first = false {
		f.mu.Lock()
		now, ended := f.now, f.ended
		if first {
			generation = min(generation, now.generation+1)
		}
		if now.generation > generation {
			f.mu.Unlock()
			return now, ended, nil
		}
		if f.reading == nil {
			f.reading = make(chan struct{})
			go f.readAt(f.next)
		}
		reading := f.reading
		f.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-f.life.Done():
			return nil, nil, f.life.Err()
		}
	}
}

// recent returns after which generation a snapshot is for a browser that has none yet: the present one may be a little old.
func (f *feed) recent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.next.Add(f.pace)) {
		return f.now.generation - 1
	}
	return f.now.generation
}

// readAt reads the store at a time, or at once if that is over.
func (f *feed) readAt(at time.Time) {
	select {
	case <-time.After(time.Until(at)):
	case <-f.life.Done():
	}
	ctx, cancel := context.WithTimeout(f.life, readWithin)
	defer cancel()
	f.mu.Lock()
	f.begun = true
	f.mu.Unlock()
	s := readAll(f.List(ctx, ""))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = s.read.Add(max(f.pace, rest*s.read.Sub(s.begun))) // also after a read that failed
	f.take(s)
	close(f.reading)
	f.reading, f.begun = nil, false
}

// readAll returns what a list shows.
func readAll(list iter.Seq2[holdfast.Info, error]) *snapshot {
	s := &snapshot{begun: time.Now()}
	for info, err := range list {
		if s.err = err; err != nil {
			break
		}
		if s.more = len(s.infos) == mostNames; s.more {
			break
		}
		s.infos = append(s.infos, info)
	}
	s.read = time.Now()
	slices.SortFunc(s.infos, func(a, b holdfast.Info) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// take makes a snapshot the present one.
func (f *feed) take(s *snapshot) {
	was := f.now
	if f.now = s; s.err != nil {
		*s = snapshot{was.generation + 1, was.begun, was.read, was.infos, was.more, was.holds, s.err}
		return
	}
	s.generation = was.generation + 1
	s.holds = map[holdID]hold{}
	for _, info := range s.infos {
		for _, h := range info.Holders {
			id := holdID{info.Name, h.Owner}
			is := hold{Holder: h, most: max(h.Expires, was.holds[id].most)}
			if h.Held > 0 {
				is.since = s.read.Add(-h.Held)
			}
			if before := was.holds[id].since; is.since.Sub(before).Abs() < time.Second { // it does not flicker
				is.since = before
			}
			s.holds[id] = is
		}
	}
	if s.read.Sub(was.read) > readWithin || s.more {
		return // nobody looked, or not all is shown: a hold that is not there may have been renewed and released
	}
	for id, h := range was.holds {
		if _, stands := s.holds[id]; !stands && h.late() && !was.begun.Add(h.Expires).After(s.read) {
			f.endLocked(ending{Name: id.name, Holder: h.Holder, At: s.read})
		}
	}
}

// endLocked remembers a hold that has ended.
func (f *feed) endLocked(e ending) {
	same := func(x ending) bool {
		return x.Name == e.Name && x.Holder.Owner == e.Holder.Owner && x.Holder.Token == e.Holder.Token
	}
	if !slices.ContainsFunc(f.ended, same) {
		f.ended = slices.Insert(slices.Clip(f.ended[:min(len(f.ended), mostEnded-1)]), 0, e)
	}
}

// end breaks a hold. It returns the generation of the last snapshot that may still show it.
func (f *feed) end(ctx context.Context, name string, token holdfast.Token) (int, error) {
	if err := f.Break(ctx, name, token); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, h, _ := f.now.find(name, token)
	h.Token = token
	f.endLocked(ending{Name: name, Holder: h.Holder, At: time.Now(), Broken: true})
	if f.begun {
		return f.now.generation + 1, nil // that read may still show it
	}
	return f.now.generation, nil
}

// find returns the hold on a name that has a token.
func (s *snapshot) find(name string, token holdfast.Token) (info holdfast.Info, h hold, ok bool) {
	i, ok := slices.BinarySearchFunc(s.infos, name, func(i holdfast.Info, name string) int { return cmp.Compare(i.Name, name) })
	if !ok {
		return info, h, false
	}
	info = s.infos[i]
	for _, holder := range info.Holders {
		if holder.Token == token && token != 0 {
			return info, s.holds[holdID{name, holder.Owner}], true
		}
	}
	return info, h, false
}
