package console

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

// TestLost: a hold that nobody renews is marked, and stands among the lost ones when its TTL has run out. One that was
// released does not.
func TestLost(t *testing.T) {
	w := newWorld(t, "", nil)
	w.hold("released", "").Release()
	for try := 1; ; try++ { // a read that comes too late shows nothing: another hold is lost then
		name := fmt.Sprintf("lost/%d", try)
		const ttl = 2 * time.Second
		if _, err := w.driver.Try(t.Context(), driver.Request{Name: name, Owner: name, TTL: ttl, Note: "dead on h, pid 1"}); err != nil {
			t.Fatal(err)
		}
		marked, page := false, w.await("/", name)
		for strings.Contains(page, "?name=lost%2F"+name[5:]) { // the link to break it
			_, page, _ = w.get("/console/live?after=1")
			marked = marked || strings.Contains(page, "not renewed</strong>")
		}
		if strings.Contains(page, "its TTL ran out") {
			if !marked || strings.Contains(page, "released") {
				t.Errorf("marked: %v\n%s", marked, page)
			}
			return
		}
	}
}

// TestTake: what successive reads tell of a hold that is not shown any more.
func TestTake(t *testing.T) {
	begin := time.Now()
	read := func(f *feed, second int, left time.Duration, err error) {
		at := begin.Add(time.Duration(second) * time.Second)
		s := &snapshot{begun: at, read: at, err: err}
		if left > 0 {
			s.infos = []holdfast.Info{{Name: "x", Holders: []driver.Holder{{Owner: "o", Token: 1, Expires: left}}}}
		}
		f.take(s)
	}
	for _, c := range []struct {
		what  string
		lefts []time.Duration // at each second; 0: it is not shown
		lost  bool
	}{
		{"expired", []time.Duration{5e9, 4e9, 3e9, 2e9, 1e9, 0}, true},
		{"released while it was well", []time.Duration{5e9, 4e9, 5e9, 4e9, 0}, false},
		{"broken by another operator", []time.Duration{5e9, 4e9, 3e9, 2e9, 0}, false},
		{"renewed late and released", []time.Duration{5e9, 4e9, 2e9, 5e9, 0}, false},
		{"released, with a short TTL", []time.Duration{1e9, 9e8, 0}, false},
		{"no TTL that the store tells", []time.Duration{0, 0}, false},
	} {
		f := &feed{now: &snapshot{}}
		for i, left := range c.lefts {
			read(f, i, left, nil)
		}
		if (len(f.ended) == 1) != c.lost {
			t.Errorf("%s: %v", c.what, f.ended)
		}
	}
	f := &feed{now: &snapshot{}}
	for i, left := range []time.Duration{5e9, 4e9, 1e9} {
		read(f, i, left, nil)
	}
	read(f, 3, 0, errors.New("no answer"))
	if f.now.err == nil || len(f.now.infos) != 1 || len(f.ended) != 0 {
		t.Errorf("a read that failed: %+v, %v", f.now, f.ended)
	}
	read(f, 60, 0, nil)
	if len(f.ended) != 0 {
		t.Errorf("nobody looked for a minute: %v", f.ended)
	}
	for i := range mostEnded + 10 {
		f.endLocked(ending{Name: fmt.Sprint(i)})
	}
	if len(f.ended) != mostEnded || f.ended[0].Name != fmt.Sprint(mostEnded+9) {
		t.Errorf("%d are remembered, the newest is %q", len(f.ended), f.ended[0].Name)
	}
}

// TestSilentStore: when the store does not answer the page says so, and shows what it showed before.
func TestSilentStore(t *testing.T) {
	w := newWorld(t, "", nil)
	w.hold("deploy", "")
	w.shows("/", []string{"deploy"}, []string{"The store cannot be read: "})
	w.locks.Close()
	if page := w.await("/", "The store cannot be read: "); !strings.Contains(page, "deploy") || !strings.Contains(page, "closed") {
		t.Error(page)
	}
}

// TestOneReadForAll: any number of browsers share the reads. The store rests between two reads for a second, and for four
// times as long as one takes, also if that fails; and nobody reads it while nobody looks.
func TestOneReadForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes, browsers, news = 500 * time.Millisecond, 50, 5
		var reads []time.Time
		f := &feed{life: t.Context(), pace: usualPace, now: &snapshot{}, Store: Store{List: func(context.Context, string) iter.Seq2[holdfast.Info, error] {
			return func(yield func(holdfast.Info, error) bool) {
				reads = append(reads, time.Now())
				if time.Sleep(takes); len(reads)%2 == 0 {
					yield(holdfast.Info{}, errors.New("no answer"))
				}
			}
		}}}
		var all sync.WaitGroup
		for range browsers {
			all.Go(func() {
				for known := range news {
					if s, _, err := f.after(t.Context(), known); err != nil || s.generation != known+1 {
						t.Errorf("after %d: %v", known, err)
					}
				}
			})
		}
		all.Wait()
		if f.recent() != news-1 {
			t.Error("a new browser waits, though there has just been a read")
		}
		time.Sleep(time.Hour)
		if len(reads) != news || f.recent() != news {
			t.Errorf("%d reads for %d browsers; a new one is content with an old read: %v", len(reads), browsers, f.recent() != news)
		}
		for i := range news - 1 {
			if gap := reads[i+1].Sub(reads[i]); gap != takes+rest*takes {
				t.Errorf("%v between two reads", gap)
			}
		}
	})
}
