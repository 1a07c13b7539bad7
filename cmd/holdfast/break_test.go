//go:build linux

package main

import (
	"encoding/json"
)

// breakLock breaks the only hold on a name.
func (w *world) breakLock(name string) {
	w.t.Helper()
	var info struct{ Holders []struct{ Token json.Number } }
	if err := json.Unmarshal([]byte(w.run(0, "show", name, "-o", "json").out.String()), &info); err != nil || len(info.Holders) != 1 {
		w.t.Fatal(info, err)
	}
	w.run(0, "break", name, "--token", info.Holders[0].Token.String())
}
