package bench

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The curve of the crowds: its points and what is drawn from them.
const (
	curveFile = "../../../../docs/crowds.csv"
	plotFile  = "../../../../docs/crowds.svg"
)

// point is one point of the curve of owner changes over clients.
type point struct {
	of      string // "now", or what the tree was, such as "before"
	store   string
	peer    string
	clients int
	// The rest are medians of so many repetitions.
	reps       int
	changes    float64 // each second
	unfairness float64 // the 99th percentile of waits ÷ fair share
	jain       float64
	starved    float64
	commands   float64 // of the server, for each owner change
	serverCPU  float64 // share of one core
	foreign    float64 // how much of the machine others used: 0 to 1
}

var curveTitles = []string{"of", "store", "peer", "clients", "repetitions", "changes_per_second", "p99_over_fair_share",
	"jain", "starved", "commands_each", "server_cpu", "foreign_cpu"}

// pointOf makes a point of the repetitions of a peer.
func pointOf(of, store, peer string, clients int, results []result) point {
	return point{of, store, peer, clients, len(results), median(results, perSecond), median(results, overFairShare),
		median(results, fairness.of), median(results, starved.of), median(results, perChange.of),
		median(results, func(r result) float64 { return r.ServerCPU }), median(results, func(r result) float64 { return r.Foreign })}
}

func (p point) figures() []*float64 {
	return []*float64{&p.changes, &p.unfairness, &p.jain, &p.starved, &p.commands, &p.serverCPU, &p.foreign}
}

// merge replaces points of the same store, peer, tree and number of clients.
func merge(old, fresh []point) []point {
	same := func(p, q point) bool {
		return p.of == q.of && p.store == q.store && p.peer == q.peer && p.clients == q.clients
	}
	all := slices.DeleteFunc(slices.Clone(old), func(p point) bool {
		return slices.ContainsFunc(fresh, func(q point) bool { return same(p, q) })
	})
	all = append(all, fresh...)
	slices.SortFunc(all, func(p, q point) int {
		return cmp.Or(strings.Compare(p.store, q.store), strings.Compare(p.peer, q.peer), strings.Compare(p.of, q.of), p.clients-q.clients)
	})
	return all
}

func writeCurve(w io.Writer, points []point) error {
	lines := csv.NewWriter(w)
	lines.Write(curveTitles)
	for _, p := range points {
		line := []string{p.of, p.store, p.peer, strconv.Itoa(p.clients), strconv.Itoa(p.reps)}
		for _, f := range p.figures() {
			line = append(line, strconv.FormatFloat(*f, 'g', 4, 64))
		}
		lines.Write(line)
	}
	lines.Flush()
	return lines.Error()
}

func readCurve(r io.Reader) ([]point, error) {
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil || len(lines) == 0 || !slices.Equal(lines[0], curveTitles) {
		return nil, errors.Join(err, fmt.Errorf("a curve begins with %v", curveTitles))
	}
	var points []point
	for _, line := range lines[1:] {
		var p point
		var figures [7]float64
		p.of, p.store, p.peer = line[0], line[1], line[2]
		if p.clients, err = strconv.Atoi(line[3]); err != nil {
			return nil, err
		}
		if p.reps, err = strconv.Atoi(line[4]); err != nil {
			return nil, err
		}
		for i := range figures {
			if figures[i], err = strconv.ParseFloat(line[5+i], 64); err != nil {
				return nil, err
			}
		}
		p.changes, p.unfairness, p.jain, p.starved = figures[0], figures[1], figures[2], figures[3]
		p.commands, p.serverCPU, p.foreign = figures[4], figures[5], figures[6]
		points = append(points, p)
	}
	return points, nil
}

// loadCurve reads a file of points; one that is not there has none.
func loadCurve(file string) ([]point, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readCurve(f)
}

// saveCurve puts points into the file of the curve, and draws it.
func saveCurve(fresh []point) error {
	old, err := loadCurve(curveFile)
	if err != nil {
		return err
	}
	all := merge(old, fresh)
	var text strings.Builder
	if err := writeCurve(&text, all); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(curveFile, []byte(text.String()), 0o644), os.WriteFile(plotFile, []byte(plot(all)), 0o644))
}
