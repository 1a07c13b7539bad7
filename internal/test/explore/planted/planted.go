// Package planted helps a test to explore a model of code as it is, and with mistakes that are planted in
// that code: a check that finds no mistake proves nothing.
//
// The race detector would make an exploration ten times as slow and finds nothing in one goroutine. So a
// program that is built without it explores, once for the code as it is and once with all mistakes in it,
// of which it makes one at a time.
package planted

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

var (
	explores = flag.Bool("explores", false, "explore in this process")
	only     = flag.String("only", "", "explore this world")
)

// Mistake is planted in the code, and must be found in a world.
type Mistake struct {
	Name, World string
	// Edits are the changes to the package: a file, what stands there once, and what replaces it, in which
	// PLANTED stands for whether the mistake is made.
	Edits [][3]string
}

// Worlds runs a test of the package that calls it, by the name of the test, in a program without the race
// detector. In that program it calls explore, which calls each for every world.
func Worlds(t *testing.T, explore func(each func(name string, f func(*testing.T)))) {
	if !*explores {
		said, err := run(t, build(t, ""), t.Name(), "", "")
		t.Log(said)
		if err != nil {
			t.Error(err)
		}
		return
	}
	explore(func(name string, f func(*testing.T)) {
		if *only == "" || *only == name {
			t.Run(name, func(t *testing.T) { t.Parallel(); f(t) })
		}
	})
}

// Found fails the test unless each mistake, planted in the package in a folder, is found by the test of
// this name, and nothing is found there without a mistake. A world that finds something says so by the
// text of a promise, as in "P1: ", and the steps.
func Found(t *testing.T, folder, test string, mistakes []Mistake) {
	program := build(t, plant(t, folder, mistakes))
	if said, err := run(t, program, test, mistakes[0].World, "none"); err != nil {
		t.Errorf("found without a mistake: %v\n%s", err, said)
	}
	for _, m := range mistakes {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			said, err := run(t, program, test, m.World, m.Name)
			if err == nil || !promise.MatchString(said) {
				t.Errorf("not found: %v\n%s", err, said)
			}
			t.Log(said)
		})
	}
}

var promise = regexp.MustCompile(`P[0-9]+: .*, after [0-9]+ steps`)

// run explores all worlds, or one of them with one mistake, in a process of its own.
func run(t *testing.T, program, test, world, mistake string) (string, error) {
	c := exec.CommandContext(t.Context(), program, "-test.v", "-test.run", "^"+test+"$", "-test.timeout", "8m", "-explores", "-only", world)
	c.Env = append(os.Environ(), "GOGC=300", "GOMEMLIMIT=6GiB", "PLANTED_MISTAKE="+mistake)
	said, err := c.CombinedOutput()
	return string(said), err
}

// build builds the program that explores, with files replaced as the overlay says.
func build(t *testing.T, overlay string) string {
	program := filepath.Join(t.TempDir(), "explore.test")
	args := slices.Concat([]string{"test", "-c", "-race=false", "-ldflags=-s -w"}, testserver.BuildFlags(), []string{"-overlay", overlay, "-o", program, "."})
	said, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

// chosen is added to the package. The program that has all mistakes makes one at a time.
const chosen = `package %s

import "os"

var mistake = os.Getenv("PLANTED_MISTAKE")
`

// plant returns an overlay that has all mistakes.
func plant(t *testing.T, folder string, mistakes []Mistake) string {
	folder, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"planted.go": fmt.Sprintf(chosen, filepath.Base(folder))}
	for _, m := range mistakes {
		for _, e := range m.Edits {
			file, right := e[0], e[1]
			if files[file] == "" {
				source, err := os.ReadFile(filepath.Join(folder, file))
				if err != nil {
					t.Fatal(err)
				}
				files[file] = string(source)
			}
			if n := strings.Count(files[file], right); n != 1 {
				t.Fatalf("%s: %s has %q %d times", m.Name, file, right, n)
			}
			wrong := strings.ReplaceAll(e[2], "PLANTED", "(mistake == \""+m.Name+"\")")
			files[file] = strings.Replace(files[file], right, wrong, 1)
		}
	}
	dir, replace := t.TempDir(), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		replace[filepath.Join(folder, name)] = filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
