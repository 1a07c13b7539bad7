package console

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/display"
	"github.com/holdfastlock/holdfast/internal/hostnote"
)

const (
	perPage  = 100  // names
	mostOf   = 50   // holders, and waiters, of a name
	maxQuery = 1024 // bytes of what is searched for
)

// question is what a browser asks for.
type question struct {
	store, page int
	search      string // what names and notes contain
	name        string // the one to break
}

// ask reads a question out of a request.
func (c *Console) ask(r *http.Request) (q question, f *feed, err error) {
	v := r.URL.Query()
	q.search, q.name = strings.TrimSpace(v.Get("q")), v.Get("name")
	q.page, _ = strconv.Atoi(v.Get("page"))
	i, err := strconv.Atoi(cmp.Or(v.Get("store"), "0"))
	switch {
	case err != nil || i < 0 || i >= len(c.feeds):
		return q, nil, refusal{errors.New("there is no such store"), http.StatusNotFound}
	case len(q.search) > maxQuery:
		return q, nil, refusal{fmt.Errorf("more than %d bytes are searched for", maxQuery), http.StatusBadRequest}
	}
	q.store = i
	return q, c.feeds[i], nil
}

// link returns the address of a page, with what else it is to be asked, in pairs.
func (q question) link(path string, more ...any) string {
	v := url.Values{}
	for name, value := range map[string]string{"q": q.search, "name": q.name} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.store > 0 {
		v.Set("store", strconv.Itoa(q.store))
	}
	for i := 0; i+1 < len(more); i += 2 {
		v.Set(fmt.Sprint(more[i]), fmt.Sprint(more[i+1]))
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// admits reports whether a name is among those that are asked for.
func (q question) admits(info holdfast.Info) bool {
	has := func(text string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(q.search)) }
	found := q.search == "" || has(info.Name)
	for i := 0; i < len(info.Holders) && !found; i++ {
		found = has(info.Holders[i].Note)
	}
	for i := 0; i < len(info.Waiters) && !found; i++ {
		found = has(info.Waiters[i].Note)
	}
	return found
}

// list is what a page shows of the names of a store.
type list struct {
	Generation               int
	Names, Held, Waited, All int // how many names are found, held and waited for; how many the store has
	From, To                 int
	Prev, Next               string // links; "": none
	Search                   string
	More                     bool
	Read                     time.Time
	Took                     time.Duration
	Err                      string
	Rows                     []row
	Ended                    []ended
}

// row is a name.
type row struct {
	ID, Name, State string
	Uses            []use
}

// use is a holder or a waiter; or that there are more of them, or that the name is closed, in Tells.
type use struct {
	Role, Tells            string
	Mode                   string // "": as the state of the name says
	Program, Host, Process string
	Token                  holdfast.Token
	For                    string
	Since                  time.Time
	Left                   string
	Part                   float64 // of the TTL that is left
	Late                   bool
	Break                  string // a link; "": none
}

// ended is a hold that was lost or broken.
type ended struct {
	use
	Name, How string
	At        time.Time
}

// show returns what there is to show of a snapshot.
func (q question) show(f *feed, s *snapshot, endings []ending) list {
	l := list{Generation: s.generation, All: len(s.infos), More: s.more, Read: s.read, Took: s.read.Sub(s.begun).Round(100 * time.Microsecond),
		Search: q.search}
	if s.err != nil {
		l.Err = plain(s.err)
	}
	var found []holdfast.Info
	for _, info := range s.infos {
		if q.admits(info) {
			found = append(found, info)
			l.Held += min(len(info.Holders), 1)
			l.Waited += min(len(info.Waiters), 1)
		}
	}
	l.Names = len(found)
	page := min(max(q.page, 1), max((len(found)+perPage-1)/perPage, 1))
	from, to := (page-1)*perPage, min(page*perPage, len(found))
	l.From, l.To = min(from+1, to), to
	if page > 1 {
		l.Prev = q.link("/", "page", page-1)
	}
	if to < len(found) {
		l.Next = q.link("/", "page", page+1)
	}
	for _, info := range found[from:to] {
		l.Rows = append(l.Rows, q.row(f, s, info))
	}
	for _, e := range endings {
		u := useOf(e.Holder.Note)
		u.Token = e.Holder.Token
		how := "its TTL ran out: it was not renewed"
		if e.Broken {
			how = "broken by this console"
		}
		l.Ended = append(l.Ended, ended{u, display.Escape(e.Name), how, e.At})
	}
	return l
}

func (q question) row(f *feed, s *snapshot, info holdfast.Info) row {
	hash := fnv.New64a()
	hash.Write([]byte(info.Name))
	r := row{ID: fmt.Sprintf("n%x", hash.Sum64()), Name: display.Escape(info.Name), State: display.State(info)}
	age := time.Since(s.read)
	for i, h := range info.Holders {
		if i == mostOf {
			r.Uses = append(r.Uses, use{Tells: fmt.Sprintf("and %d more holders", len(info.Holders)-mostOf)})
			break
		}
		seen := s.holds[holdID{info.Name, h.Owner}]
		u := useOf(h.Note)
		u.Role, u.Token, u.Since, u.For, u.Late = "holds", h.Token, seen.since, display.Duration(h.Held), seen.late()
		if h.Mode != driver.Exclusive {
			u.Mode = display.Mode(h.Mode, h.Permits, info.Slots)
		}
		if h.Expires > 0 {
			left := max(h.Expires-age, 0)
			u.Left, u.Part = left.Round(time.Second).String(), left.Seconds()/seen.most.Seconds()
		}
		if f.Break != nil && h.Token > 0 {
			u.Break = question{store: q.store, name: info.Name}.link("/console/break", "token", h.Token)
		}
		r.Uses = append(r.Uses, u)
	}
	if info.ClosedFor > 0 {
		r.Uses = append(r.Uses, use{Tells: "closed to others: opens in " + display.Duration(info.ClosedFor)})
	}
	for i, w := range info.Waiters {
		if i == mostOf {
			r.Uses = append(r.Uses, use{Tells: fmt.Sprintf("and %d more waiters", len(info.Waiters)-mostOf)})
			break
		}
		u := useOf(w.Note)
		u.Role, u.For = fmt.Sprintf("waits, %d", i+1), display.Duration(w.Waiting)
		if w.Mode != driver.Exclusive {
			u.Mode = display.Mode(w.Mode, w.Permits, info.Slots)
		}
		r.Uses = append(r.Uses, u)
	}
	return r
}

// useOf returns what a note tells: the program, the host and the process, or else a text.
func useOf(note string) use {
	if program, host, pid, ok := hostnote.Parse(note); ok {
		return use{Program: display.Escape(program), Host: display.Escape(host), Process: pid}
	}
	return use{Program: display.Escape(note)}
}
