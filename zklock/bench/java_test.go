//go:build soak

package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// java is the program CuratorBurst, in a Java machine with all its compilers.
type java struct {
	commands io.Writer
	answers  *bufio.Scanner
	errors   *bytes.Buffer
}

func startJava(b *testing.B) *java {
	b.Helper()
	dir := filepath.Join(testserver.NeedPeers(b), "java")
	j := &java{errors: &bytes.Buffer{}}
	cmd := exec.Command("java", "-cp", filepath.Join(dir, "*"), "CuratorBurst.java") // which is compiled first
	cmd.Stderr = j.errors
	in, err := cmd.StdinPipe()
	testserver.Must(b, err)
	out, err := cmd.StdoutPipe()
	testserver.Must(b, err)
	testserver.Must(b, cmd.Start())
	b.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // it has answered all that it was asked
	})
	j.commands, j.answers = in, bufio.NewScanner(out)
	return j
}

// burst is burst with Curator.
func (j *java) burst(b *testing.B, servers string, w workload) (shares []int) {
	b.Helper()
	fmt.Fprintln(j.commands, servers, w.clients, w.path, w.names, w.window.Milliseconds())
	if !j.answers.Scan() {
		b.Fatalf("Curator has ended: %s", j.errors)
	}
	for text := range strings.SplitSeq(j.answers.Text(), ",") {
		n, err := strconv.Atoi(text)
		testserver.Must(b, err)
		shares = append(shares, n)
	}
	return shares
}
