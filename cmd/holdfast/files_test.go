//go:build soak && linux

package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestFilesCommands reads and writes the files of a cell as an operator does.
func TestFilesCommands(t *testing.T) {
	w := newWorld(t)
	server := testserver.StartCell(t, testserver.CellOptions{})
	w.env = append(w.env, "HOLDFAST_STORE=cell://"+server.Addrs()+"/team")
	if err := os.WriteFile(w.path("one"), []byte("one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.run(1, "files", "get", "app/config").expectErr("no such node")
	w.run(0, "files", "put", "app/config", w.path("one"), "--if-generation", "0")
	w.run(1, "files", "put", "app/config", w.path("one"), "--if-generation", "0").expectErr("another generation")
	if got := w.run(0, "files", "get", "app/config").out.String(); got != "one\n" {
		t.Errorf("the file is printed as %q", got)
	}
	var file struct {
		Path       string
		Size       int
		Generation int64 `json:"content_generation"`
	}
	if err := json.Unmarshal([]byte(w.run(0, "files", "get", "app/config", "-o", "json").out.String()), &file); err != nil {
		t.Fatal(err)
	}
	if file.Path != "app/config" || file.Size != 4 || file.Generation == 0 {
		t.Errorf("the file is %+v", file)
	}
	w.run(1, "files", "rm", "app/config", "--if-generation", "1")
	w.run(0, "files", "ls").expectOut("app/\n")
	w.run(0, "files", "ls", "app").expectOut("app/config")
	w.run(0, "files", "acl", "app/config", "--write", "editors").expectOut("editors")
	w.run(0, "files", "acl", "app/config").expectOut("editors")

	watching := w.start("files", "watch", "app", "--on", "child-added,child-removed", "-o", "json")
	await(t, "an event", func() bool {
		w.run(0, "files", "put", "app/"+strconv.Itoa(os.Getpid()), w.path("one"))
		w.run(0, "files", "rm", "app/"+strconv.Itoa(os.Getpid()))
		return strings.Contains(watching.out.String(), "child-added") && strings.Contains(watching.out.String(), "child-removed")
	})
	watching.signal(syscall.SIGINT)
	watching.ends(0)
	watching.expectOut(`"kind":"child-added"`)

	w.run(0, "files", "rm", "app/config", "--if-generation", strconv.FormatInt(file.Generation, 10))
	w.run(0, "files", "ls").expectErr("no files")
	w.run(64, "files", "get", "a//b").expectErr("empty path element")
	w.run(64, "files", "watch", "a", "--on", "nonsense").expectErr("is no event")
	w.run(64, "--store", "file://"+w.path("locks"), "files", "ls").expectErr("cell://")
	server.Members[0].Kill()
	w.run(69, "files", "ls")
}
