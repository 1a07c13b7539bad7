package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The plots stand in pages without a ground of their own: their colours are readable on light and on
// dark ones. All axes are logarithmic.
const plotHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="11" role="img">
<title>%s</title>
<style>
text { fill: #6e7781 } .t { font-size: 13px; font-weight: 600 } .g { stroke: #8b949e; stroke-opacity: .4; stroke-width: .6; fill: none }
.l { fill: none; stroke-width: 1.8 } path.p0 { stroke: #2f81f7 } circle.p0 { fill: #2f81f7 }
path.p1 { stroke: #db6d28 } circle.p1 { fill: #db6d28 } path.p2 { stroke: #a371f7 } circle.p2 { fill: #a371f7 } path.p3 { stroke: #2da44e } circle.p3 { fill: #2da44e }
</style>
`

// axis is one axis of a panel; its first and its last tick are its ends.
type axis struct {
	title string
	ticks []float64
}

// at returns where a figure is between the ends of an axis: 0 to 1.
func (a axis) at(v float64) float64 {
	low, high := a.ticks[0], a.ticks[len(a.ticks)-1]
	return math.Log(v/low) / math.Log(high/low)
}

// line is what one case has in a panel.
type line struct {
	title string
	dots  []dot
}

// dot is one point; y is 0 where there is none. A bar goes from least to most, if they are not 0.
type dot struct {
	x, y, least, most float64
	label             string
}

// panel draws one panel, whose upper left corner is at left and top, and the legend of its lines at legend.
func panel(b *strings.Builder, across, up axis, lines []line, left, top, width, height, legend int) {
	x := func(v float64) float64 { return float64(left) + float64(width)*across.at(v) }
	y := func(v float64) float64 { return float64(top) + float64(height)*(1-up.at(v)) }
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>\n", left, top-5, up.title)
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", left+width, top+height+28, across.title)
	grid := ""
	for _, v := range up.ticks {
		grid += fmt.Sprintf("M%d %.1fh%d", left, y(v), width)
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", left-5, y(v)+4, tick(v))
	}
	for _, v := range across.ticks {
		grid += fmt.Sprintf("M%.1f %dv%d", x(v), top, height)
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x(v), top+height+14, tick(v))
	}
	fmt.Fprintf(b, "<path class=\"g\" d=\"%s\"/>\n", grid)
	for i, l := range slices.Backward(lines) { // ours last, above the others
		class, path, dots := fmt.Sprintf("p%d", i%4), "", ""
		for _, d := range l.dots {
			if d.y <= 0 { // there is no such place on the axis: a cross on its ground says so
				dots += fmt.Sprintf("<path class=\"l %s\" d=\"M%.1f %dm-4 -4l8 8m0 -8l-8 8\"/>", class, x(d.x), top+height)
				continue
			}
			path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(len(path), 1)], x(d.x), y(d.y))
			dots += fmt.Sprintf("<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", class, x(d.x), y(d.y))
			if d.least > 0 {
				dots += fmt.Sprintf("<path class=\"l %s\" d=\"M%.1f %.1fV%.1f\"/>", class, x(d.x), y(d.least), y(d.most))
			}
			if d.label != "" {
				dots += fmt.Sprintf("<text x=\"%.1f\" y=\"%.1f\">%s</text>", x(d.x)+12, y(d.y)-9, d.label)
			}
		}
		if path != "" {
			dots = fmt.Sprintf("<path class=\"l %s\" d=\"%s\"/>", class, path) + dots
		}
		b.WriteString(dots + "\n")
		if legend > 0 {
			below := legend + 14*i
			fmt.Fprintf(b, "<path class=\"l %s\" d=\"M%d %dh20\"/><text x=\"%d\" y=\"%d\">%s</text>\n", class, left, below-4, left+26, below, escape(l.title))
		}
	}
}

func tick(v float64) string {
	if v < 1 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return grouped(v)
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// plotCrowds draws two panels for each store, one above the other: owner changes per second, and the
// 99th percentile of waits ÷ fair share.
func plotCrowds(all []figures) string {
	const perRow, columnWidth, width, height, left = 3, 296, 225, 130, 52
	const head, apart = 90, height + 60 // a store's name and its legend; from one panel to the next
	clients := axis{"clients", []float64{4, 16, 64, 256, 1000}}
	var shown []*store
	for _, s := range stores {
		if slices.ContainsFunc(all, func(f figures) bool { return f.key[0] == s.name }) {
			shown = append(shown, s)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, plotHead, perRow*columnWidth+12, (len(shown)+perRow-1)/perRow*(head+2*apart),
		"Owner changes per second, and the 99th percentile of waits over the fair share, for 4 to 1,000 clients on one name")
	for i, s := range shown {
		x, y := left+columnWidth*(i%perRow), (head+2*apart)*(i/perRow)
		fmt.Fprintf(&b, "<text class=\"t\" x=\"%d\" y=\"%d\">%s</text>\n", x, y+16, s.title)
		panel(&b, clients, axis{"owner changes/s", decades(all, 1)}, crowdLines(all, s, 1), x, y+head, width, height, y+32)
		panel(&b, clients, axis{"wait p99 ÷ fair share", decades(all, 2)}, crowdLines(all, s, 2), x, y+head+apart, width, height, 0)
	}
	return b.String() + "</svg>\n"
}

// crowdLines returns the lines of a store's i-th figure: Holdfast's, and its peers'.
func crowdLines(all []figures, s *store, i int) []line {
	var lines []line
	for _, p := range append([]peer{{name: oursName}}, s.peers...) {
		l := line{title: p.name}
		for _, f := range all {
			if f.key[0] != s.name || f.key[1] != p.name || i == 2 && f.n[i] <= 0 { // unknown
				continue
			}
			n, _ := strconv.ParseFloat(f.key[2], 64)
			l.dots = append(l.dots, dot{x: n, y: f.n[i]})
		}
		slices.SortFunc(l.dots, func(d, e dot) int { return int(d.x - e.x) })
		if l.dots != nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// decades returns the powers of ten between which all i-th figures are.
func decades(all []figures, i int) []float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for _, f := range all {
		if f.n[i] > 0 {
			low, high = min(low, math.Floor(math.Log10(f.n[i]))), max(high, math.Ceil(math.Log10(f.n[i])))
		}
	}
	var ticks []float64
	for e := low; e <= max(high, low+1); e++ {
		ticks = append(ticks, math.Pow10(int(e)))
	}
	return ticks
}

// plotCrashes draws one panel: what a holder costs the store, and how long its death keeps the name closed. A
// bar goes from the least to the most of the times at one TTL.
func plotCrashes(all []figures) string {
	var lines []line
	for _, s := range stores {
		l := line{title: s.title}
		for _, f := range all {
			if f.key[0] == s.name && f.n[1] > 0 { // somebody counts the requests
				apart := math.Pow(1.05, float64(len(lines))) // stores would hide each other
				d := dot{x: f.n[1] * apart, y: f.n[3], least: f.n[2], most: f.n[4]}
				if len(lines) == 0 {
					d.label = "TTL " + f.key[1] + " s"
				}
				l.dots = append(l.dots, d)
			}
		}
		if l.dots != nil {
			lines = append(lines, l)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, plotHead, 620, 380, "Seconds from the death of a holder until the next owner, over the requests that a holder sends each second")
	panel(&b, axis{"requests per second, of one holder", []float64{0.1, 0.2, 0.5, 1, 2, 5}},
		axis{"seconds from kill -9 to the next owner", []float64{0.5, 1, 2, 5, 10, 20, 50}}, lines, 52, 90, 520, 240, 20)
	return b.String() + "</svg>\n"
}
