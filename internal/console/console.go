// Package console is a page that shows, live, who holds and who waits for the locks of a store, in any store whose
// driver is a driver.Operator. The command's console and the members of a cell serve it.
//
// Pages are made on the server, and load nothing from elsewhere. All browsers share one read of a store, each second at
// most, and nobody reads it while no browser looks.
package console

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/internal/display"
)

// Store is one store that a console shows.
type Store struct {
	// Name is what people know it by, such as its URL without secrets.
	Name string
	// List is as Client.List.
	List func(ctx context.Context, prefix string) iter.Seq2[holdfast.Info, error]
	// Break is as Client.Break. nil: the console breaks nothing.
	Break func(ctx context.Context, name string, t holdfast.Token) error
	// Doctor checks the store. nil: the console has no such page.
	Doctor func(ctx context.Context) []Finding
}

// Finding is a result of a check of a store.
type Finding struct{ Check, Severity, Found, Risk, Remedy string }

// Console is a handler of "/" and of the paths below "/console/". It is safe for concurrent use. It asks nobody who he is:
// see Guard.
type Console struct {
	feeds  []*feed
	mux    *http.ServeMux
	secret string // in each form: who does not read the page does not know it
}

// examination is what the doctor has found.
type examination struct {
	At       time.Time
	Findings []Finding
}

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"clock": func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"iso":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"when":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
}).ParseFS(assets, "assets/*.html"))

// New returns a console over one or more stores. It reads none of them after the end of the context.
func New(life context.Context, stores ...Store) *Console {
	c := &Console{mux: http.NewServeMux(), secret: rand.Text()}
	for _, s := range stores {
		c.feeds = append(c.feeds, &feed{Store: s, life: life, pace: usualPace, now: &snapshot{}})
	}
	c.handle("GET /{$}", c.names("page.html"))
	c.handle("GET /console/live", c.names("main"))
	c.handle("GET /console/break", c.confirm)
	c.handle("POST /console/break", c.breakHold)
	c.handle("GET /console/doctor", c.doctor)
	c.handle("POST /console/doctor", c.doctor)
	for _, name := range []string{"style.css", "live.js", "icon.svg"} {
		c.mux.HandleFunc("GET /console/"+name, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, assets, "assets/"+name) })
	}
	return c
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w)
	c.mux.ServeHTTP(w, r)
}

// secure says that a page takes everything from here, is shown in no other page, and is kept nowhere.
func secure(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// page is what the templates show.
type page struct {
	Title    string
	Kind     string // of the page: "list", "confirm", "doctor", "message" or "login"
	Stores   []tab
	Doctor   string // a link; "": none
	Home     string
	Store    int
	Secret   string
	ReadOnly bool
	List     list
	Row      row // of confirm
	Message  string
	examination
}

// tab is a link to a store.
type tab struct {
	Name, Link string
	Current    bool
}

// page returns a page of a kind.
func (c *Console) page(kind string, q question) page {
	f := c.feeds[q.store]
	p := page{Title: f.Name, Kind: kind, Store: q.store, Secret: c.secret, ReadOnly: f.Break == nil,
		Home: question{store: q.store}.link("/"), List: list{Search: q.search}}
	for i, f := range c.feeds {
		p.Stores = append(p.Stores, tab{f.Name, question{store: i}.link("/"), i == q.store})
	}
	if f.Doctor != nil {
		p.Doctor = question{store: q.store}.link("/console/doctor")
	}
	return p
}

// write answers with a page, or a part of one.
func write(w http.ResponseWriter, status int, part string, p any) {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, part, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

// refusal is an error of a request, with its status.
type refusal struct {
	error
	status int
}

var (
	errGone     = refusal{errors.New("nothing was broken: no hold on this name has this token (any more)"), http.StatusConflict}
	errReadOnly = refusal{errors.New("this console breaks nothing: holdfast console --allow-break does"), http.StatusForbidden}
	errNoDoctor = refusal{errors.New("this console has no doctor"), http.StatusNotFound}
	errForm     = refusal{errors.New("this form is not of a page of this console, or of one before its last start: open the page again"), http.StatusForbidden}
)

// handle has requests of a pattern answered, or refused by what the function returns.
func (c *Console) handle(pattern string, answer func(w http.ResponseWriter, r *http.Request, q question, f *feed) error) {
	c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		q, f, err := c.ask(r)
		if err == nil && r.Method == http.MethodPost {
			err = c.form(w, r)
		}
		if err == nil {
			err = answer(w, r, q, f)
		}
		if err == nil {
			return
		}
		status := http.StatusServiceUnavailable // the store does not answer
		if known, ok := errors.AsType[refusal](err); ok {
			status = known.status
		}
		p := c.page("message", q)
		p.Message = plain(err)
		write(w, status, "page.html", p)
	})
}

// plain returns what an error says, on one line.
func plain(err error) string {
	return display.Escape(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "holdfast: "), "\n", "; "))
}

// form checks that a form is of a page of this console.
func (c *Console) form(w http.ResponseWriter, r *http.Request) error {
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if new(http.CrossOriginProtection).Check(r) != nil || !same(r.PostFormValue("secret"), c.secret) {
		return errForm
	}
	return nil
}

// names returns what shows the names of a store: in a whole page, or in the part of it that changes. It waits for
// something newer than what the browser has, if that tells what it has.
func (c *Console) names(part string) func(http.ResponseWriter, *http.Request, question, *feed) error {
	return func(w http.ResponseWriter, r *http.Request, q question, f *feed) error {
		known, _ := strconv.Atoi(r.URL.Query().Get("after"))
		s, endings, err := f.after(r.Context(), max(known, f.recent()))
		if err != nil { // the browser has gone, or the console ends
			return err
		}
		p := c.page("list", q)
		p.List = q.show(f, s, endings)
		write(w, http.StatusOK, part, p)
		return nil
	}
}

// tokenOf reads a token.
func tokenOf(text string) (holdfast.Token, error) {
	t, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, refusal{fmt.Errorf("%.40q is no token", text), http.StatusBadRequest}
	}
	return holdfast.Token(t), nil
}

// confirm shows what is about to be broken.
func (c *Console) confirm(w http.ResponseWriter, r *http.Request, q question, f *feed) error {
	if f.Break == nil {
		return errReadOnly
	}
	token, err := tokenOf(r.URL.Query().Get("token"))
	if err != nil {
		return err
	}
	s, _, err := f.after(r.Context(), f.recent())
	if err == nil {
		err = s.err
	}
	if err != nil {
		return err
	}
	info, h, ok := s.find(q.name, token)
	if !ok {
		return errGone
	}
	info.Holders, info.Waiters, info.ClosedFor = []driver.Holder{h.Holder}, nil, 0
	p := c.page("confirm", q)
	p.Row = q.row(f, s, info)
	write(w, http.StatusOK, "page.html", p)
	return nil
}

// breakHold ends a hold by the token that the operator has seen (P4).
func (c *Console) breakHold(w http.ResponseWriter, r *http.Request, q question, f *feed) error {
	if f.Break == nil {
		return errReadOnly
	}
	token, err := tokenOf(r.PostFormValue("token"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), readWithin)
	defer cancel()
	generation, err := f.end(ctx, q.name, token)
	switch {
	case errors.Is(err, holdfast.ErrNotHeld):
		return errGone
	case err != nil:
		return fmt.Errorf("the hold may stand: %w", err)
	}
	http.Redirect(w, r, question{store: q.store}.link("/", "after", generation), http.StatusSeeOther)
	return nil
}

// doctor shows what the doctor has found last. A form has it look, once at a time.
func (c *Console) doctor(w http.ResponseWriter, r *http.Request, q question, f *feed) error {
	if f.Doctor == nil {
		return errNoDoctor
	}
	f.doctoring.Lock()
	defer f.doctoring.Unlock()
	if r.Method == http.MethodPost {
		f.found = examination{time.Now(), f.Doctor(r.Context())}
		for i := range f.found.Findings {
			x := &f.found.Findings[i]
			x.Found, x.Risk, x.Remedy = display.Escape(x.Found), display.Escape(x.Risk), display.Escape(x.Remedy)
		}
		http.Redirect(w, r, q.link("/console/doctor"), http.StatusSeeOther)
		return nil
	}
	p := c.page("doctor", q)
	p.examination = f.found
	write(w, http.StatusOK, "page.html", p)
	return nil
}
