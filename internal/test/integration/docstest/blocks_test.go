//go:build linux

package docstest

import (
	"regexp"
	"strings"
)

// block is a fenced block of a page.
type block struct {
	page string
	line int
	kind string // after the fence
	note string // of the comment before it, <!-- test: … -->: how to run it
	text string
}

// note matches a comment that says how to run the block that follows.
var note = regexp.MustCompile(`^<!-- test: (.*) -->$`)

// blocks returns the fenced blocks of a page.
func blocks(page, text string) (all []block) {
	var b *block
	var before string
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(line, "```")
		switch {
		case b == nil && fence:
			b = &block{page: page, line: i + 1, kind: strings.TrimPrefix(line, "```"), note: before}
		case b == nil:
			if m := note.FindStringSubmatch(line); m != nil {
				before = m[1]
			} else if line != "" {
				before = ""
			}
		case fence:
			all = append(all, *b)
			b, before = nil, ""
		default:
			b.text += line + "\n"
		}
	}
	return all
}
