//go:build linux

package docstest

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// waited is how long a client is watched that waits.
const waited = 5 * time.Second

// short returns a figure with two digits.
func short(v float64) string {
	if v < 0.05 {
		return "0"
	}
	if v < 10 {
		return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
	}
	scale := math.Pow(10, math.Floor(math.Log10(v))-1)
	return strconv.FormatFloat(math.Round(v/scale)*scale, 'f', -1, 64)
}

// number matches a figure of a table.
var number = regexp.MustCompile(`\d+(?:\.\d+)?`)

// near reports whether the figures of two lines, which have the same words, differ by no more than one,
// or a hundred bytes, or two thirds: what is polled on a busy machine, and how logs are padded, is left to
// chance. Servers of other versions that cost the same are not a difference.
func near(have, want string) bool {
	if strings.HasPrefix(have, "Measured with ") {
		return true
	}
	slack := 1.0
	if strings.Contains(have, "bytes") {
		slack = 100
	}
	measured := number.FindAllString(want, -1)
	for i, f := range number.FindAllString(have, -1) {
		a, err := strconv.ParseFloat(f, 64)
		b, err2 := strconv.ParseFloat(measured[i], 64)
		if err != nil || err2 != nil || math.Abs(a-b) > max(slack, max(a, b)*2/3) {
			return false
		}
	}
	return true
}

func TestNear(t *testing.T) {
	for _, c := range []struct {
		have, want string
		near       bool
	}{
		{"| a | 2 | 10 |", "| a | 3 | 5.5 |", true}, {"| a | 2 | 10 |", "| a | 2 | 3 |", false},
		{"Measured with x 7.0.", "Measured with x 7.1.", true}, {"| a | 2 |", "| a | 7 |", false}, {"| bytes | 0 |", "| bytes | 90 |", true}, {"| bytes | 0 |", "| bytes | 110 |", false},
	} {
		if near(c.have, c.want) != c.near {
			t.Errorf("%s, %s: near is %t", c.have, c.want, !c.near)
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0.01: "0", 0.25: "0.3", 2: "2", 9.96: "10", 17.4: "17", 1234: "1200"} {
		if got := short(v); got != want {
			t.Errorf("%v is %s, want %s", v, got, want)
		}
	}
}
