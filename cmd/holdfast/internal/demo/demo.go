package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
	_ "github.com/holdfastlock/holdfast/filelock" // file://, the demo's own store
)

// Options are the options of the flash sale. The zero value of each field is its default.
type Options struct {
	// Store is the URL of the store that keeps the locks. All processes must share it, so it
	// cannot be mem://. "": a directory of the demo's own (file://).
	Store string
	// JSON asks for an array of objects instead of the table.
	JSON bool
	// Out gets the table or the array. Nil: it is discarded.
	Out io.Writer
	// Progress gets a progress bar if it is a terminal, else a line per strategy. Nil: neither.
	Progress io.Writer
	// Width is the width of the table, in columns. 0: that of Out, if it is a terminal, else 80.
	Width int
	// Strategies are the names of the strategies to show. None: all.
	Strategies []string

	Users    int // 0: 100. At most 1000
	Stock    int // items to sell. 0: 3
	Services int // processes, at least 2. 0: 3
	// Repeats is how often each strategy is run at most: fewer times if that would take longer
	// than Within. 0: 3.
	Repeats int
	// Within is the time limit for all runs together. Each strategy is run at least once, however
	// long that takes. 0: 40 s.
	Within time.Duration
}

// Limits of Options.
const (
	maxUsers    = 1000
	maxServices = 20
)

// demonstration is a flash sale or a cron job that is under way.
type demonstration struct {
	Options
	dir  string // has the databases and the demo's own store; removed at the end
	id   string // part of the names of locks, so that two demos may use one store
	caps holdfast.Caps
	runs int
}

// ErrOptions is wrapped by errors that say what is wrong with the options.
var ErrOptions = errors.New("demo")

func badOptions(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...)
}

// setDefaults replaces zero values by the defaults, and checks all values.
func (o *Options) setDefaults() error {
	for _, n := range []struct {
		name            string
		value           *int
		least, def, top int
	}{
		{"Users", &o.Users, 1, 100, maxUsers},
		{"Stock", &o.Stock, 1, 3, maxUsers},
		{"Services", &o.Services, 2, 3, maxServices},
		{"Repeats", &o.Repeats, 1, 3, 1000},
	} {
		if *n.value == 0 {
			*n.value = n.def
		}
		if *n.value < n.least || *n.value > n.top {
			return badOptions("%s is %d: %d to %d are allowed", n.name, *n.value, n.least, n.top)
		}
	}
	if o.Users <= o.Stock {
		return badOptions("%d users and %d in stock: there must be more users, "+
			"or nothing can be oversold", o.Users, o.Stock)
	}
	if o.Within == 0 {
		o.Within = 40 * time.Second
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return nil
}

// prepare creates the directory of a demonstration, and checks that its store can be opened.
func (o Options) prepare(ctx context.Context) (*demonstration, error) {
	if o.Store != "" {
		u, err := driver.ParseURL(o.Store)
		if err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
		if u.Scheme == "mem" {
			return nil, badOptions("the store mem:// lives in one process, and the demo has several")
		}
	}
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	if o.Store == "" {
		path := filepath.ToSlash(filepath.Join(dir, "locks"))
		o.Store = (&url.URL{Scheme: "file", Path: path}).String()
	}
	d := &demonstration{Options: o, dir: dir, id: rand.Text()[:8]}
	locks, err := openStore(ctx, o.Store)
	if err == nil {
		d.caps = locks.Caps()
		err = locks.Close()
	}
	if err != nil {
		return nil, errors.Join(causeOf(ctx, err), d.cleanUp())
	}
	return d, nil
}

// openStore opens the store, in the demo and in its services.
func openStore(ctx context.Context, url string) (*holdfast.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return holdfast.Open(ctx, url)
}

// cleanUp removes the demonstration's directory.
func (d *demonstration) cleanUp() error {
	if err := os.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// name returns the name of the lock of a run. Each run has its own name, so that a hold which
// outlives its run does not delay the next one.
func (d *demonstration) name(strategy string) string {
	return fmt.Sprintf("holdfast-demo/%s/%d-%s", d.id, d.runs, strategy)
}

// Run runs the flash sale with each strategy, one after the other, and writes the results. It
// takes well under a minute. When the context ends, the demo's processes are killed, its files are
// removed and the context's cause is returned. A program that should end on Ctrl-C makes the
// context with signal.NotifyContext.
func Run(ctx context.Context, o Options) (err error) {
	chosen, err := choose(o.Strategies)
	if err != nil {
		return err
	}
	if err := o.setDefaults(); err != nil {
		return err
	}
	d, err := o.prepare(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.cleanUp()) }()
	results, err := d.sales(ctx, chosen)
	if err != nil {
		return causeOf(ctx, err)
	}
	if o.JSON {
		return writeJSON(o.Out, results)
	}
	return d.table(results)
}

// causeOf returns the cause of the context's end, if it has ended, instead of an error that only
// follows from it.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("demo: %w", cause)
	}
	return err
}

// noTokens is the note on strategies that need fencing tokens.
const noTokens = "the store gives no fencing tokens"

// sales runs the strategies, each as often as its share of the time allows.
func (d *demonstration) sales(ctx context.Context, chosen []strategy) ([]Result, error) {
	bar := newProgress(d.Progress, len(chosen))
	defer bar.end()
	until := time.Now().Add(d.Within)
	var results []Result
	for i, s := range chosen {
		result := Result{Strategy: s.name, What: s.what, Stock: d.Stock, ExpectedWrong: s.wrong}
		begun := time.Now()
		share := until.Sub(begun) / time.Duration(len(chosen)-i)
		switch {
		case s.pause && !canPause:
			result.Note = "processes cannot be stopped on this system"
		case s.fence && s.pause && !d.caps.Fencing:
			result.Note = noTokens
		}
		for n := 0; n < d.Repeats && (n > 0 || result.Note == ""); n++ {
			// Another run will probably take as long as those before did.
			took := time.Since(begun)
			if n > 0 && took+took/time.Duration(n) > share {
				break
			}
			bar.show(float64(i)+float64(n)/float64(d.Repeats), "%s, run %d", s.name, n+1)
			o, err := d.sale(ctx, s)
			if err != nil {
				return nil, err
			}
			result.add(o)
		}
		if s.fence && !s.pause && !d.caps.Fencing {
			result.Note = noTokens + ", so the database checks none"
		}
		bar.line("%s: %s", s.name, result.verdict())
		results = append(results, result)
	}
	return results, nil
}
