package server

import (
	"context"
	"iter"
	"net/http"

	"github.com/holdfastlock/holdfast"
	hfcell "github.com/holdfastlock/holdfast/cell"
	"github.com/holdfastlock/holdfast/internal/console"
)

// consolePaths is what the paths of the console begin with, that of its page excepted, which is "/".
const consolePaths = "/console/"

// mountConsole serves the console at "/", for those who administer the cell: see laneOf. It breaks nothing.
func (m *Member) mountConsole(mux *http.ServeMux) {
	c := console.New(m.stopping, console.Store{Name: "cell, by its member " + m.config.Name, List: m.front.list})
	mux.Handle("/{$}", c)
	mux.Handle(consolePaths, c)
}

// list yields the names in use, whoever may see them.
func (f *front) list(ctx context.Context, _ string) iter.Seq2[holdfast.Info, error] {
	return func(yield func(holdfast.Info, error) bool) {
		if err := f.sync(ctx); err != nil {
			yield(holdfast.Info{}, err)
			return
		}
		var names []string
		f.mirror.mu.Lock()
		f.mirror.names.Ascend(func(n *name) bool {
			names = append(names, n.name)
			return true
		})
		f.mirror.mu.Unlock()
		for _, text := range names {
			if info := hfcell.DriverInfo(f.show(text)); !info.Idle() && !yield(info, nil) {
				return
			}
		}
	}
}
