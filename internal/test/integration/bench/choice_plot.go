package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The plot of crashes is one panel with logarithmic axes: what a holder costs the store, and how
// long its death keeps the name closed.
const (
	crashWidth, crashHeight = 620, 330
	crashLeft, crashTop     = 56, 64
	crashRight              = 570
	crashBottom             = 280
	sideways                = 5 // how far apart stores are drawn that would hide each other
)

// crashTicks are the figures that are written along the axes.
var (
	requestTicks = []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20}
	freedTicks   = []float64{0.2, 0.5, 1, 2, 5, 10, 20, 50}
)

// plotFalls draws the curve of crashes. The colours follow the reader's setting, light or dark. A
// bar goes from the least to the most of the times at one TTL.
func plotFalls(all []fall) string {
	all = slices.DeleteFunc(slices.Clone(all), func(f fall) bool { return f.requests <= 0 })
	var requests, freed []float64
	for _, f := range all {
		requests = append(requests, f.requests)
		freed = append(freed, f.least.Seconds(), f.most.Seconds())
	}
	left, right := around(requests, requestTicks)
	bottom, top := around(freed, freedTicks)
	across := func(v float64) float64 {
		return crashLeft + (crashRight-crashLeft)*math.Log(v/left)/math.Log(right/left)
	}
	up := func(v float64) float64 {
		return crashBottom - (crashBottom-crashTop)*math.Log(v/bottom)/math.Log(top/bottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12" role="img" aria-labelledby="t d">
<title id="t">Seconds from the death of a holder until the next owner, over the requests that a holder sends each second</title>
<desc id="d">%s</desc>
<style>
text { fill: #57606a } .b { fill: #24292f; font-weight: 600 } .g { stroke: #d0d7de; fill: none } .l { fill: none; stroke-width: 2 }
path.c0 { stroke: #0969da } .d0 { fill: #0969da } path.c1 { stroke: #bc4c00 } .d1 { fill: #bc4c00 } path.c2 { stroke: #8250df } .d2 { fill: #8250df } path.c3 { stroke: #1a7f37 } .d3 { fill: #1a7f37 }
@media (prefers-color-scheme: dark) {
text { fill: #9198a1 } .b { fill: #f0f6fc } .g { stroke: #3d444d }
path.c0 { stroke: #4493f8 } .d0 { fill: #4493f8 } path.c1 { stroke: #db6d28 } .d1 { fill: #db6d28 } path.c2 { stroke: #ab7df8 } .d2 { fill: #ab7df8 } path.c3 { stroke: #3fb950 } .d3 { fill: #3fb950 }
}
</style>
`, crashWidth, crashHeight, escape(crashWords(all)))
	grid := "<path class=\"g\" d=\""
	var labels strings.Builder
	for _, v := range requestTicks {
		if v < left || v > right {
			continue
		}
		grid += fmt.Sprintf("M%.1f %dV%d", across(v), crashTop, crashBottom)
		fmt.Fprintf(&labels, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", across(v), crashBottom+18, v)
	}
	for _, v := range freedTicks {
		if v < bottom || v > top {
			continue
		}
		grid += fmt.Sprintf("M%d %.1fH%d", crashLeft, up(v), crashRight)
		fmt.Fprintf(&labels, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g s</text>\n", crashLeft-8, up(v)+4, v)
	}
	b.WriteString(grid + "\"/>\n" + labels.String())
	fmt.Fprintf(&b, "<text class=\"b\" x=\"%d\" y=\"20\">From kill -9 to the next owner, for TTLs of 1 to 30 s</text>\n", crashLeft)
	fmt.Fprintf(&b, "<text class=\"b\" x=\"%d\" y=\"%d\" text-anchor=\"end\">requests per second, of one holder</text>\n", crashRight, crashBottom+40)
	drawn := 0
	var labelled [][2]float64 // points whose TTL is written beside them
	for _, s := range choiceStores {
		var path, marks strings.Builder
		for _, f := range all {
			if f.store != s.name {
				continue
			}
			x, y := across(f.requests)+sideways*float64(drawn-1), up(f.middle.Seconds())
			pen := "L"
			if path.Len() == 0 {
				pen = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", pen, x, y)
			fmt.Fprintf(&marks, "<path class=\"l c%d\" d=\"M%.1f %.1fV%.1f\"/><circle class=\"d%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", drawn, x, up(f.least.Seconds()), up(f.most.Seconds()), drawn, x, y)
			if isLabelled := slices.ContainsFunc(labelled, func(p [2]float64) bool { return math.Hypot(p[0]-x, p[1]-y) < 40 }); !isLabelled {
				labelled = append(labelled, [2]float64{x, y})
				fmt.Fprintf(&marks, "<text x=\"%.1f\" y=\"%.1f\">%s</text>", x+20, y-9, inSeconds(f.ttl))
			}
			marks.WriteString("\n")
		}
		if path.Len() == 0 {
			continue
		}
		fmt.Fprintf(&b, "<path class=\"l c%d\" d=\"%s\"/>\n%s", drawn, path.String(), marks.String())
		x := crashLeft + 130*drawn
		fmt.Fprintf(&b, "<path class=\"l c%d\" d=\"M%d 42h22\"/><text x=\"%d\" y=\"46\">%s</text>\n", drawn, x, x+28, s.title)
		drawn++
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func inSeconds(ttl time.Duration) string { return fmt.Sprintf("%g s", ttl.Seconds()) }

// crashWords says in words what the curve shows.
func crashWords(all []fall) string {
	var said []string
	for _, s := range choiceStores {
		var points []string
		for _, f := range all {
			if f.store == s.name {
				points = append(points, fmt.Sprintf("with a TTL of %s %.2f requests per second, free after %s to %s s",
					inSeconds(f.ttl), f.requests, secs(f.least), secs(f.most)))
			}
		}
		if points != nil {
			said = append(said, s.title+": "+strings.Join(points, "; ")+".")
		}
	}
	return "Both axes are logarithmic, and each point is a TTL. " + strings.Join(said, " ")
}

// around returns the closest ticks that have all figures between them.
func around(figures, ticks []float64) (low, high float64) {
	low, high = ticks[0], ticks[len(ticks)-1]
	for _, v := range ticks {
		if len(figures) > 0 && v <= slices.Min(figures) {
			low = v
		}
	}
	for _, v := range slices.Backward(ticks) {
		if len(figures) > 0 && v >= slices.Max(figures) {
			high = v
		}
	}
	return low, high
}
