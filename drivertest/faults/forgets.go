package faults

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// Way is a way in which a store fails.
type Way struct {
	Name  string
	Start func(*testing.T) Forgetful
	More  string // parameters of a further run with the rule. "": there is none
}

// Forgetful is a store that fails, and may forget what it acknowledged.
type Forgetful struct {
	URL     string
	Beside  string                 // the URL of an old primary, which lives on beside the new one. "": there is none
	Lag     func()                 // from now on what the store acknowledges is not kept. nil: it is
	Fail    func()                 // returns when it should serve again
	Forgets bool                   // then it has forgotten all holds
	Splits  bool                   // the old primary grants beside the new one
	Has     func(name string) bool // reports whether the server that fails has it. nil: it has all
}

const (
	names   = 100              // each with a process that holds it, and one that waits for it
	longest = 10 * time.Second // hf.maxttl, and the TTL
)

var (
	runs = flag.Int("forgets.runs", 1, "how often TestForgets lets each store fail")
	rows = flag.String("forgets.csv", "", "a `file` to which TestForgets appends a row for each run")
)

// Forgets lets stores fail while each of a hundred names has a holder and a waiter, each a process of its own. Without the
// rule of package life many names get a second holder while the first one trusts its lease. With it none does, unless an
// old primary lives on that grants. docs/forget.csv has the runs of one machine.
func Forgets(t *testing.T, ways []Way) {
	var crowd []*testserver.Child
	for range 2 * names {
		crowd = append(crowd, testserver.StartChild(t, contender, contender))
	}
	for range *runs {
		for _, way := range ways {
			rules := []string{"hf.forget=go", "hf.maxttl=" + longest.String()}
			if way.More != "" {
				rules = append(rules, rules[1]+"&"+way.More)
			}
			for _, rule := range rules {
				t.Run(way.Name+", "+rule, func(t *testing.T) {
					testserver.TakeTurn(t)
					row := way.Start(t).fails(t, crowd, rule)
					t.Logf("answers, grants, served after, closed for %.2f s; losses, doubled: %g", row[:losses], row[losses:])
					if *rows != "" {
						f, err := os.OpenFile(*rows, os.O_APPEND|os.O_WRONLY, 0)
						testserver.Must(t, err)
						_, err = fmt.Fprintf(f, "%q,%s,%.2f,%.2f,%.2f,%.2f,%g,%g\n", way.Name, rule, row[0], row[1], row[2], row[3], row[4], row[5])
						testserver.Must(t, err, f.Close())
					}
				})
			}
		}
	}
}

// failure is what one run shows, as a row of docs/forget.csv has it.
type failure [6]float64

// The figures of a failure. The first three are seconds since it began, the last two count names.
const (
	answers = iota // until the store answers
	grants         // until it grants a free name
	served         // until the last waiter had the name of a holder that had lost
	closed         // from the first answer to the first grant
	losses         // the holder has lost
	doubled        // two holders trusted their leases at the same time
)

// fails lets the store fail under a crowd, of which each process of the first half holds a name, and one of the second
// half waits for it. It checks what they say.
func (s Forgetful) fails(t *testing.T, crowd []*testserver.Child, rule string) (row failure) {
	free := make([]string, 0, 2*names) // the first half is for the crowd
	for i := 0; len(free) < cap(free); i++ {
		if name := fmt.Sprint("name", i); s.Has == nil || s.Has(name) {
			free = append(free, name)
		}
	}
	for i, c := range crowd {
		store := s.URL
		if s.isBeside(i) {
			store = s.Beside
		}
		c.Ask("opened", "%s", with(store, rule)) // one after another: to open costs more than to wait
	}
	other, err := holdfast.Open(t.Context(), with(s.URL, rule))
	testserver.Must(t, err)
	defer other.Close()
	if s.Lag != nil {
		s.Lag()
	}
	for i, c := range crowd[:names] {
		c.Tell("%s", free[i])
	}
	for i, c := range crowd[:names] {
		c.Expect("has")
		crowd[names+i].Tell("%s", free[i])
	}
	time.Sleep(time.Second / 2) // one that does not wait yet comes during the failure
	began := driver.HostClock.Now()
	s.Fail()
	row[answers], row[grants] = opensAfter(t, other, free[names:], began)
	row[closed] = row[grants] - row[answers]
	rest := longest / 2 // the holders renew
	if s.Beside != "" {
		rest = longest * 5 / 4 // the old primary grants the names of those who have left it
	}
	time.Sleep(max(time.Second, rest-time.Duration(row[closed]*1e9)))
	holds := s.end(t, crowd)
	for i, h := range holds[:names] {
		if h.Lost != "" {
			row[losses]++
			row[served] = max(row[served], holds[names+i].From.Sub(began).Seconds())
		}
	}
	two, disorder := Overlaps(holds), Disorder(holds)
	row[doubled] = float64(len(two))
	if s.Forgets && row[losses] < names/2 {
		t.Errorf("the store is said to forget, and only %g holders have lost", row[losses])
	}
	if rule != "hf.forget=go" && !s.Splits && len(two) > 0 {
		t.Errorf("P1: %d names had two holders: %s", len(two), two[0])
	}
	if rule != "hf.forget=go" && !s.Splits && len(disorder) > 0 && other.Caps().Fencing {
		t.Errorf("P3: of %d: %s", len(disorder), disorder[0])
	}
	return row
}

// with returns a URL with one more parameter.
func with(url, param string) string {
	if strings.Contains(url, "?") {
		return url + "&" + param
	}
	return url + "?" + param
}

// isBeside reports whether a process of the crowd stays with the old primary: half of the holders, and the waiters for
// the others' names.
func (s Forgetful) isBeside(i int) bool { return s.Beside != "" && (i%2 == 0) == (i < names) }

// end lets the holders release, then those who have waited for them, and returns the holds.
func (s Forgetful) end(t *testing.T, crowd []*testserver.Child) (holds []Hold) {
	for i, c := range crowd {
		if i >= names && !s.isBeside(i) {
			c.Line() // it has the name, or has waited for minutes
		}
		c.Tell("end")
	}
	for i, c := range crowd {
		said, err := c.Line()
		for ; err == nil && !strings.HasPrefix(said, "held"); said, err = c.Line() {
		}
		var h Hold
		testserver.Must(t, err, json.Unmarshal([]byte(strings.TrimPrefix(said, "held")), &h))
		if holds = append(holds, h); h.From == 0 && !s.isBeside(i) {
			t.Errorf("P7: nobody has granted %q", h.Name)
		}
	}
	return holds
}

// opensAfter asks for a free name until it is granted.
func opensAfter(t *testing.T, c *holdfast.Client, free []string, began driver.Instant) (answers, now float64) {
	for end, i := time.Now().Add(time.Minute), 0; time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		_, err := c.Mutex(free[i%len(free)], &holdfast.Options{TTL: longest}).TryAcquire(ctx)
		cancel()
		now = driver.HostClock.Now().Sub(began).Seconds()
		if held, is := errors.AsType[*holdfast.HeldError](err); err == nil || is && held.Forgotten > 0 {
			answers = cmp.Or(answers, now)
		} else {
			i++ // the request may have been carried out
		}
		if err == nil {
			return answers, now
		}
	}
	t.Error("P7: no free name was granted within a minute")
	return answers, now
}

// contender is a child that opens the URL, acquires the name, and ends its lease, for each three lines that it reads.
const contender = "contender"

func contend([]string) error {
	runtime.GOMAXPROCS(1) // there are two hundred
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		c, err := holdfast.Open(context.Background(), in.Text())
		for end := time.Now().Add(time.Minute); err != nil; c, err = holdfast.Open(context.Background(), in.Text()) {
			if time.Now().After(end) {
				return err
			}
			time.Sleep(200 * time.Millisecond) // the machine is busy
		}
		fmt.Println("opened")
		in.Scan()
		hold := Hold{Name: in.Text()}
		ctx, end := context.WithTimeout(context.Background(), 2*time.Minute)
		ended := make(chan struct{})
		go func() { in.Scan(); end(); close(ended) }()
		for ctx.Err() == nil {
			lease, err := c.Mutex(hold.Name, &holdfast.Options{TTL: longest}).Acquire(ctx)
			if err != nil {
				time.Sleep(200 * time.Millisecond) // the fail-over may be under way
				continue
			}
			fmt.Println("has")
			hold = WatchEvery(lease, 50*time.Millisecond, ctx.Done(), nil)
			<-ctx.Done()
			lease.Release() // of a hold that is lost it says so
		}
		if hold.From == 0 {
			fmt.Println("has not")
		}
		<-ended
		c.Close() // its server may be gone
		text, err := json.Marshal(hold)
		if err != nil {
			return err
		}
		fmt.Println("held", string(text))
	}
	return nil
}
