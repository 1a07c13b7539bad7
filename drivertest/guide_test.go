//go:build soak

package drivertest_test

import (
	"bytes"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// guide is the page that authors of drivers follow.
const guide = "../docs/writing-a-driver.md"

// TestGuide follows the guide to its last step, in a module outside of this workspace: it
// runs the guide's shell blocks in their order, and writes its Go blocks into the files that
// they name. The module's sums are those of drivertest.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	clone, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sums, err := os.ReadFile("go.sum")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	files, file, commands := map[string]*bytes.Buffer{}, "", 0
	for _, b := range blocks(string(text)) {
		if b.language == "go" {
			if first, rest, _ := strings.Cut(b.text, "\n"); strings.HasPrefix(first, "// file: ") {
				file, b.text = strings.TrimPrefix(first, "// file: "), rest
			}
			if files[file] == nil {
				files[file] = &bytes.Buffer{}
			}
			files[file].WriteString(b.text + "\n")
			if err := os.WriteFile(filepath.Join(dir, file), files[file].Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		cmd := exec.Command("bash", "-euc", b.text)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "HOLDFAST="+clone)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", b.text, err, out)
		}
		commands++
	}
	for name, text := range files {
		source := bytes.TrimSpace(text.Bytes())
		if good, err := format.Source(source); err != nil || !bytes.Equal(bytes.TrimSpace(good), source) {
			t.Errorf("%s of the guide is not formatted as by gofmt: %v", name, err)
		}
	}
	if len(files) < 3 || commands < 2 {
		t.Errorf("the guide has %d files and %d blocks of commands", len(files), commands)
	}
}

// block is a fenced block of a document.
type block struct{ language, text string }

// blocks returns the blocks of Go and of shell commands, in their order, without
// the indentation of the list that they stand in.
func blocks(text string) (found []block) {
	var b *block
	indent := ""
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case b == nil && (trimmed == "```go" || trimmed == "```sh"):
			b, indent = &block{language: trimmed[3:]}, line[:strings.Index(line, "`")]
		case b != nil && trimmed == "```":
			found, b = append(found, *b), nil
		case b != nil:
			b.text += strings.TrimPrefix(line, indent)
		}
	}
	return found
}
