package demo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// progress says how far it is: by a bar that is drawn over and over on a
// terminal, by lines elsewhere.
type progress struct {
	out io.Writer
	bar bool
	of  int // what the whole is
}

func newProgress(out io.Writer, of int) *progress {
	p := &progress{out: out, of: of}
	if out == nil {
		p.out = io.Discard
	}
	if f, ok := out.(*os.File); ok {
		p.bar = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// eraseLine goes to the start of the line and clears it.
const eraseLine = "\r\x1b[K"

// show draws the bar, if there is one, with what is being done.
func (p *progress) show(done float64, format string, args ...any) {
	if !p.bar {
		return
	}
	const width = 24
	full := min(width, int(done/float64(p.of)*width))
	fmt.Fprintf(p.out, "%s[%s%s] %s", eraseLine, strings.Repeat("#", full), strings.Repeat(".", width-full), fmt.Sprintf(format, args...))
}

// line says that something is done, where there is no bar.
func (p *progress) line(format string, args ...any) {
	if !p.bar {
		fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// end clears the bar away, for good.
func (p *progress) end() {
	if p.bar {
		fmt.Fprint(p.out, eraseLine)
	}
	p.bar, p.out = false, io.Discard
}
