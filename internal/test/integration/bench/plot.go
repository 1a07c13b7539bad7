package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The plot has two panels for each store, one above the other: owner changes per second, and p99 ÷
// fair share. All axes are logarithmic, and equal for all stores.
const (
	plotWidth   = 900
	perRow      = 3 // stores
	panelWidth  = 225
	panelHeight = 130
	marginLeft  = 52
	columnWidth = 296
	titleHeight = 100 // of a store's name and its legend
	rowHeight   = titleHeight + 2*(panelHeight+40) + 12
	leastCrowd  = 3.0
	mostCrowd   = 1300.0
)

var plotStores = []struct{ name, title string }{
	{"redis", "Redis"}, {"etcd", "etcd"}, {"files", "files"},
	{"postgres", "PostgreSQL"}, {"mariadb", "MariaDB"}, {"mysql", "MySQL"},
}

// axis is the vertical axis of a panel, between two powers of ten.
type axis struct {
	title     string
	of        func(point) float64
	crosses   bool // where there is none
	low, high int
}

// line is what one peer has in both panels of a store.
type line struct {
	title, class string
	points       []point
}

// order is the order of lines in a legend, by their classes.
var order = []string{"now", "before", "p0", "p1", "p2"}

// plot draws a curve. It has no ground of its own: its colours are readable on light and on dark
// ones. A cross stands where not one owner change was seen.
func plot(points []point) string {
	axes := []axis{
		{title: "owner changes/s", of: func(p point) float64 { return p.changes }, crosses: true},
		{title: "wait p99 ÷ fair share", of: func(p point) float64 { return p.unfairness }},
	}
	for i := range axes {
		axes[i].low, axes[i].high = decades(points, axes[i].of)
	}
	shown := slices.DeleteFunc(slices.Clone(plotStores), func(s struct{ name, title string }) bool {
		return !slices.ContainsFunc(points, func(p point) bool { return p.store == s.name })
	})
	rows := (len(shown) + perRow - 1) / perRow
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="11" role="img">
<title>Owner changes per second, and the 99th percentile of waits over the fair share, for 4 to 1,000 clients on one name</title>
<style>
text { fill: #6e7781 } .t { font-size: 13px; font-weight: 600 } .g { stroke: #8b949e; stroke-opacity: .4; stroke-width: .6; fill: none }
.l { fill: none; stroke-width: 1.8 } .before { stroke-dasharray: 2 3 } .x { stroke-dasharray: none }
path.now, path.before { stroke: #2f81f7 } circle.now, circle.before { fill: #2f81f7 }
path.p0 { stroke: #db6d28 } circle.p0 { fill: #db6d28 } path.p1 { stroke: #a371f7 } circle.p1 { fill: #a371f7 } path.p2 { stroke: #2da44e } circle.p2 { fill: #2da44e }
</style>
`, plotWidth, rows*rowHeight)
	for i, s := range shown {
		x, y := marginLeft+columnWidth*(i%perRow), rowHeight*(i/perRow)
		lines := linesOf(points, s.name)
		fmt.Fprintf(&b, "<text class=\"t\" x=\"%d\" y=\"%d\">%s</text>\n", x, y+16, s.title)
		for j, l := range lines {
			below := y + 32 + 14*j
			fmt.Fprintf(&b, "<path class=\"l %s\" d=\"M%d %dh20\"/><text x=\"%d\" y=\"%d\">%s</text>\n", l.class, x, below-4, x+26, below, escape(l.title))
		}
		for j, a := range axes {
			panel(&b, a, lines, x, y+titleHeight+j*(panelHeight+40))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// linesOf returns the lines of a store: Holdfast's, and its peers'.
func linesOf(points []point, store string) []line {
	var lines []line
	peers := 0
	for _, p := range points {
		if p.store != store {
			continue
		}
		title := p.peer
		if p.of != "now" && p.peer == "holdfast" {
			title += ", " + p.of
		}
		i := slices.IndexFunc(lines, func(l line) bool { return l.title == title })
		if i < 0 {
			l := line{title: title, class: "now"}
			switch {
			case p.peer != "holdfast":
				l.class = fmt.Sprintf("p%d", peers%3)
				peers++
			case p.of != "now":
				l.class = "before"
			}
			i = len(lines)
			lines = append(lines, l)
		}
		// Of a peer the points of now count.
		if at := slices.IndexFunc(lines[i].points, func(q point) bool { return q.clients == p.clients }); at >= 0 {
			if p.of == "now" {
				lines[i].points[at] = p
			}
			continue
		}
		lines[i].points = append(lines[i].points, p)
	}
	slices.SortStableFunc(lines, func(l, m line) int {
		return slices.Index(order, l.class) - slices.Index(order, m.class)
	})
	for _, l := range lines {
		slices.SortFunc(l.points, func(p, q point) int { return p.clients - q.clients })
	}
	return lines
}

// panel draws one panel, whose upper left corner is at x and y.
func panel(b *strings.Builder, a axis, lines []line, x, y int) {
	across := func(n float64) float64 {
		return float64(x) + panelWidth*math.Log(n/leastCrowd)/math.Log(mostCrowd/leastCrowd)
	}
	up := func(v float64) float64 {
		return float64(y) + panelHeight*(float64(a.high)-math.Log10(v))/float64(a.high-a.low)
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%s</text>\n<path class=\"g\" d=\"", x, y-5, a.title)
	for e := a.low; e <= a.high; e++ {
		fmt.Fprintf(b, "M%d %.1fh%d", x, up(math.Pow10(e)), panelWidth)
	}
	for _, n := range []float64{4, 16, 64, 256, 1000} {
		fmt.Fprintf(b, "M%.1f %dv%d", across(n), y, panelHeight)
	}
	b.WriteString("\"/>\n")
	for e := a.low; e <= a.high; e++ {
		fmt.Fprintf(b, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", x-5, up(math.Pow10(e))+4, power(e))
	}
	for _, n := range []int{4, 16, 64, 256, 1000} {
		fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", across(float64(n)), y+panelHeight+14, n)
	}
	for _, l := range slices.Backward(lines) { // ours last, above the others
		var path, dots strings.Builder
		pen := "M"
		for _, p := range l.points {
			v := a.of(p)
			if v <= 0 { // there is no such place on the axis: a cross on its ground says that nobody had the lock
				if a.crosses {
					fmt.Fprintf(&dots, "<path class=\"l %s x\" d=\"M%.1f %dm-4 -4l8 8m0 -8l-8 8\"/>", l.class, across(float64(p.clients)), y+panelHeight)
				}
				continue
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, across(float64(p.clients)), up(v))
			fmt.Fprintf(&dots, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.2\"/>", l.class, across(float64(p.clients)), up(v))
			pen = "L"
		}
		if path.Len() > 0 {
			fmt.Fprintf(b, "<path class=\"l %s\" d=\"%s\"/>", l.class, &path)
		}
		b.WriteString(dots.String() + "\n")
	}
}

// decades returns the powers of ten between which all figures are.
func decades(points []point, of func(point) float64) (low, high int) {
	first := true
	for _, p := range points {
		v := of(p)
		if v <= 0 {
			continue
		}
		below, above := int(math.Floor(math.Log10(v))), int(math.Ceil(math.Log10(v)))
		if first {
			low, high, first = below, above, false
		}
		low, high = min(low, below), max(high, above)
	}
	return low, max(high, low+1)
}

func power(e int) string {
	if e < 0 {
		return fmt.Sprintf("%.*f", -e, math.Pow10(e))
	}
	return grouped(math.Pow10(e))
}

// grouped writes a number without a fraction, with commas.
func grouped(f float64) string {
	digits := fmt.Sprintf("%.0f", f)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
