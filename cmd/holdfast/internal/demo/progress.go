package demo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// progress shows how far the demonstration is: by a bar on a terminal, by lines elsewhere.
type progress struct {
	out io.Writer
	bar bool
	of  int // the number at which all is done
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

// show draws the bar, if there is one, and beside it what is being done.
func (p *progress) show(done float64, format string, args ...any) {
	if !p.bar {
		return
	}
	const width = 24
	full := min(width, int(done/float64(p.of)*width))
	bar := strings.Repeat("#", full) + strings.Repeat(".", width-full)
	fmt.Fprintf(p.out, "%s[%s] %s", eraseLine, bar, fmt.Sprintf(format, args...))
}

// line writes a line, where there is no bar.
func (p *progress) line(format string, args ...any) {
	if !p.bar {
		fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// end erases the bar. Nothing is shown after that.
func (p *progress) end() {
	if p.bar {
		fmt.Fprint(p.out, eraseLine)
	}
	p.bar, p.out = false, io.Discard
}
