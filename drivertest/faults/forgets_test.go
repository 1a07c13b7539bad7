package faults

import (
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

var update = flag.Bool("update", false, "draw docs/forget.svg from docs/forget.csv")

// plotted are the ways of docs/forget.csv, in the order of the plot. The first ones fail Redis.
var plotted = []string{
	"restarted, without persistence", "killed, appendfsync everysec", "power lost, appendfsync everysec", "FLUSHALL",
	"a lagging replica, promoted by hand", "sentinels, killed", "sentinels, killed, replicas lag",
	"sentinels, cut off, min-replicas 1", "sentinels, cut off, min-replicas 0", "cluster, killed, replica lags",
	"PostgreSQL, a lagging standby, promoted", "PostgreSQL, tables unlogged, crashes", "MariaDB, a lagging replica takes over", "MySQL, a lagging replica takes over",
	"MariaDB, its host crashes", "MySQL, its host crashes",
}

const ofRedis = 10

// TestPlot: docs/forget.svg and the tables of the stores' pages are those of docs/forget.csv, whose rows TestForgets has
// written.
func TestPlot(t *testing.T) {
	const docs = "../../docs/"
	f, err := os.Open(docs + "forget.csv")
	testserver.Must(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	testserver.Must(t, err)
	all := map[string][]failure{} // by way and rule
	for _, row := range rows[1:] {
		var run failure
		for i := range run {
			run[i], err = strconv.ParseFloat(row[2+i], 64)
			testserver.Must(t, err)
		}
		all[row[0]+row[1]] = append(all[row[0]+row[1]], run)
	}
	svg := plot(all)
	if *update {
		testserver.Must(t, os.WriteFile(docs+"forget.svg", []byte(svg), 0o644))
	}
	drawn, err := os.ReadFile(docs + "forget.svg")
	testserver.Must(t, err)
	if string(drawn) != svg {
		t.Error("docs/forget.svg is not that of docs/forget.csv: run this test with -update")
	}
	for page, ways := range map[string][]string{"redis": plotted[:ofRedis], "postgresql": plotted[ofRedis : ofRedis+2], "mysql": plotted[ofRedis+2:]} {
		text, err := os.ReadFile(docs + "stores/" + page + ".md")
		testserver.Must(t, err)
		if table := tabled(all, ways); !strings.Contains(string(text), table) {
			t.Errorf("docs/stores/%s.md has not the table\n%s", page, table)
		}
	}
}

// shown are the rules of the plot, with their colours.
var shown = [...]struct{ rule, title, colour string }{
	{"hf.forget=go", "without the rule: hf.forget=go", "#db6d28"}, {"hf.maxttl=10s", "with it: hf.maxttl=10s", "#2f81f7"},
}

// sorted returns a figure of all runs.
func sorted(runs []failure, figure int) (all []float64) {
	for _, run := range runs {
		all = append(all, run[figure])
	}
	slices.Sort(all)
	return all
}

// plot draws a row for each way to fail, with a lane for each rule: bars are medians, dots are runs. Its colours can be
// read on light and on dark pages.
func plot(all map[string][]failure) string {
	const top, apart, left = 62, 34, 236
	bottom := top + apart*len(plotted)
	var b strings.Builder
	add := func(format string, args ...any) { fmt.Fprintf(&b, strings.ReplaceAll(format, "'", `"`), args...) }
	add(`<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 870 %d' font-family='system-ui, sans-serif' font-size='11' role='img'>
<title>Of 100 names in a store that fails: seconds until it grants again, second holders, and holders that have lost, without and with the rule</title>
<style>text { fill: #6e7781 } .g { stroke: #8b949e; stroke-opacity: .4; stroke-width: .6 } .f { fill: #8b949e; fill-opacity: 1 } circle { fill-opacity: .5 } rect { fill-opacity: .6 }</style>
`, bottom+24)
	for i, s := range shown {
		add("<rect x='%d' y='8' width='14' height='8' fill='%s'/><text x='%d' y='16'>%s</text>\n", left+200*i, s.colour, left+20+200*i, s.title)
	}
	for i, way := range plotted {
		add("<text x='%d' y='%d' text-anchor='end'>%s</text>\n", left-10, top+apart*i+15, way)
	}
	for _, panel := range []struct {
		title                     string
		figure, left, width, most int
	}{
		{"seconds until it answers (grey), and grants", grants, left, 310, 24},
		{"names with two holders", doubled, left + 340, 110, 100},
		{"holders that have lost", losses, left + 490, 110, 100},
	} {
		wide := func(v float64) float64 { return float64(panel.width) * min(v/float64(panel.most), 1) }
		add("<text x='%d' y='%d'>%s</text>\n", panel.left, top-16, panel.title)
		for v := 0; v <= panel.most; v += panel.most / 4 {
			x := float64(panel.left) + wide(float64(v))
			add("<path class='g' d='M%.1f %dV%d'/><text x='%.1f' y='%d' text-anchor='middle'>%d</text>\n", x, top-6, bottom, x, bottom+14, v)
		}
		bar := func(y int, sorted []float64, paint string) {
			add("<rect x='%d' y='%d' width='%.1f' height='9' "+paint+"/>", panel.left, y, wide(sorted[len(sorted)/2]))
		}
		for i, way := range plotted {
			for j, s := range shown {
				runs, y := all[way+s.rule], top+apart*i+13*j
				dots := sorted(runs, panel.figure)
				bar(y, dots, "fill='"+s.colour+"'")
				if panel.figure == grants {
					bar(y, sorted(runs, answers), "class='f'")
				}
				for _, v := range dots {
					add("<circle cx='%.1f' cy='%.1f' r='2.5' fill='%s'/>", float64(panel.left)+wide(v), float64(y)+4.5, s.colour)
				}
			}
			add("\n")
		}
	}
	return b.String() + "</svg>\n"
}

// tabled returns the table of a page: medians, and in brackets the least and the most.
func tabled(all map[string][]failure, ways []string) string {
	text := "| what fails | seconds until it answers | and from then until it grants | of 100 names, with two holders | the same with `hf.forget=go` |\n|---|---|---|---|---|\n"
	spread := func(runs []failure, figure, digits int) string {
		all := sorted(runs, figure)
		text := func(i int) string { return strconv.FormatFloat(all[i], 'f', digits, 64) }
		if text(0) == text(len(all)-1) {
			return text(0)
		}
		return text(len(all)/2) + " (" + text(0) + "–" + text(len(all)-1) + ")"
	}
	for _, way := range ways {
		before, after := all[way+shown[0].rule], all[way+shown[1].rule]
		text += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", way, spread(slices.Concat(before, after), answers, 1),
			spread(after, closed, 1), spread(after, doubled, 0), spread(before, doubled, 0))
	}
	return text
}
