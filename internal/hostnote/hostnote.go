// Package hostnote makes the notes of holds that have none of their own.
package hostnote

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// Parse returns the program, the host and the process id that a note tells which Of has made.
func Parse(note string) (program, host, pid string, ok bool) {
	rest, pid, ok := cutLast(note, ", pid ")
	if _, err := strconv.ParseUint(pid, 10, 32); !ok || err != nil {
		return "", "", "", false
	}
	program, host, ok = cutLast(rest, " on ")
	return program, host, pid, ok && program != "" && host != ""
}

// cutLast cuts a text at the last separator.
func cutLast(text, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(text, sep); i >= 0 {
		return text[:i], text[i+len(sep):], true
	}
	return text, "", false
}
