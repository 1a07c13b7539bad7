// Package demo shows what locks are for. Nothing is staged: real processes work side by side, and what went
// wrong is counted afterwards.
//
// [Sale] is a flash sale. Four order services, each a process of its own, sell three items to a hundred
// users. A service does what such services do: it reads the stock, takes the payment (a few milliseconds),
// and writes the order and the new stock. The database is a file of SQLite.
//
// [Cron] is a job that three replicas, whose clocks differ a little, should run once per tick.
//
// The processes are the calling program itself, started again: see [IsChild].
package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/filelock" // file://, the demonstration's own store
)

// Options are the options of both demonstrations.
type Options struct {
	Store         string    // the URL of the locks' store, not mem://. "": a directory of the demonstration's own
	JSON          bool      // an array of objects instead of the table
	Out, Progress io.Writer // the results; a line for each strategy as it begins
	Ticks         int       // of the cron job
}

// demonstration is a flash sale or a cron job that is under way.
type demonstration struct {
	Options
	dir   string // has the databases and the demonstration's own store; removed at the end
	names string // how the names of locks begin: two demonstrations may use one store
	caps  holdfast.Caps
}

// demonstrate opens the store, and calls show, whose results it writes: as JSON, or as the text. When the
// context ends, the processes are killed. All files are removed.
func demonstrate(ctx context.Context, o Options, show func(*demonstration) (results any, text string, err error)) (err error) {
	d := &demonstration{Options: o, names: "holdfast-demo/" + rand.Text()[:8] + "/"}
	if d.dir, err = os.MkdirTemp("", "holdfast-demo-"); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	if d.Store == "" {
		d.Store = (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(d.dir, "locks"))}).String()
	}
	locks, err := openStore(ctx, d.Store)
	if err != nil {
		return err
	}
	d.caps = locks.Caps()
	results, text, err := show(d)
	if err = errors.Join(err, locks.Close()); err != nil {
		return err
	}
	if d.JSON {
		object, _ := json.MarshalIndent(results, "", "  ") // numbers and strings
		text = string(object) + "\n"
	}
	if _, err = io.WriteString(d.Out, text); err != nil {
		err = fmt.Errorf("demo: writing the result: %w", err)
	}
	return err
}

// openStore opens the store, in the demonstration and in its processes.
func openStore(ctx context.Context, url string) (*holdfast.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return holdfast.Open(ctx, url)
}
