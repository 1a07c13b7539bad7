// Package hostnote makes the notes of holds that have none of their own.
package hostnote

import (
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// Of returns a note that tells an operator where a program runs. It has at most limit bytes. The program's arguments are
// not in it: they may contain secrets.
func Of(program string, limit int) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	note := fmt.Sprintf("%s on %s, pid %d", filepath.Base(program), host, os.Getpid())
	if len(note) > limit || !utf8.ValidString(note) {
		note = fmt.Sprintf("pid %d", os.Getpid())
	}
	return note
}
