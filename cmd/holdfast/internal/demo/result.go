package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Result is the result of a strategy. It is the JSON form too, whose keys do not change. The
// numbers are those of one run: of several runs, the one that went most wrong.
type Result struct {
	Strategy       string  `json:"strategy"`
	What           string  `json:"what"` // what the code does
	Stock          int     `json:"stock"`
	Sold           int     `json:"sold"`            // orders
	Left           int     `json:"left"`            // what the shop believes it still has
	Oversold       int     `json:"oversold"`        // orders for which there is no item
	UserViolations int     `json:"user_violations"` // users with more than one order: one is allowed
	StaleRefused   int     `json:"stale_refused"`   // writes refused because of their fencing token
	Seconds        float64 `json:"seconds"`         // from the first request to the last answer
	SalesPerSecond float64 `json:"sales_per_second"`
	Runs           int     `json:"runs"`
	OversoldRuns   int     `json:"oversold_runs"`
	ViolatedRuns   int     `json:"violated_runs"` // those with users with more than one order
	ExpectedWrong  bool    `json:"expected_wrong"`
	Note           string  `json:"note"` // why there was no run, or what did not go to plan; mostly ""
}

// add adds a run. The result has the numbers of the run that went most wrong.
func (r *Result) add(o outcome) {
	r.Runs++
	oversold := o.oversold(r.Stock)
	if oversold > 0 {
		r.OversoldRuns++
	}
	if o.twice > 0 {
		r.ViolatedRuns++
	}
	if o.note != "" {
		r.Note = o.note
	}
	worse := oversold > r.Oversold || oversold == r.Oversold && o.twice > r.UserViolations
	if r.Runs > 1 && !worse {
		return
	}
	r.Sold, r.Left, r.Oversold = o.sold, o.left, oversold
	r.UserViolations, r.StaleRefused = o.twice, o.refused
	r.Seconds = math.Round(o.took.Seconds()*1000) / 1000
	r.SalesPerSecond = math.Round(float64(o.sold)/o.took.Seconds()*10) / 10
}

// verdict says in a few words whether the strategy went wrong, and how often.
func (r *Result) verdict() string {
	verdict := fmt.Sprintf("never oversold in %s", runs(r.Runs))
	switch {
	case r.Runs == 0:
		return "not run: " + r.Note
	case r.OversoldRuns > 0:
		verdict = fmt.Sprintf("oversold in %d of %s", r.OversoldRuns, runs(r.Runs))
	case r.ViolatedRuns > 0:
		verdict = fmt.Sprintf("not oversold, but two orders of one user in %d of %s",
			r.ViolatedRuns, runs(r.Runs))
	case r.ExpectedWrong:
		verdict = fmt.Sprintf("not oversold in %s, by luck alone", runs(r.Runs))
	}
	if r.Note != "" {
		verdict += " (" + r.Note + ")"
	}
	return verdict
}

func runs(n int) string {
	if n == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", n)
}

// writeJSON writes an array with an object per line.
func writeJSON[T any](w io.Writer, results []T) error {
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	for i, r := range results {
		b.WriteString([]string{"[", ",\n "}[min(i, 1)])
		if err := lines.Encode(r); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		b.Truncate(b.Len() - 1) // without the line's end
	}
	b.WriteString("]\n")
	return write(w, b.String())
}

func write(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("demo: writing the result: %w", err)
	}
	return nil
}
