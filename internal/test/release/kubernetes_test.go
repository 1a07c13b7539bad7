//go:build soak

package release

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// podSpec is what a manifest says of its pods, which have one container each.
type podSpec struct {
	TerminationGracePeriodSeconds int
	Containers                    []struct {
		Command, Args []string
		Env           []struct {
			Name, Value string
			ValueFrom   struct {
				FieldRef     struct{ FieldPath string }
				SecretKeyRef struct{ Key string }
			}
		}
		ReadinessProbe, LivenessProbe struct{ HTTPGet struct{ Path string } }
	}
}

// readManifest returns the pods of a file, and their number.
func readManifest(t *testing.T, file string) (podSpec, int) {
	t.Helper()
	const toJSON = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(open(sys.argv[1]))), sys.stdout)"
	text := must(t, "../../../packaging/kubernetes", nil, testserver.NeedLinter(t, "python3"), "-c", toJSON, file)
	var objects []struct {
		Spec struct {
			Replicas int
			Template struct{ Spec podSpec }
		}
	}
	testserver.Must(t, json.Unmarshal([]byte(text), &objects))
	last := objects[len(objects)-1].Spec
	return last.Template.Spec, last.Replicas
}

// start starts a pod's process, from the programs in dir. The values are those of the pod's fields and of the secret's
// keys; host replaces paths and addresses of the pod by others.
func (p podSpec) start(t *testing.T, dir string, values map[string]string, host ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	c, replace := p.Containers[0], strings.NewReplacer(host...)
	var env, expand []string
	for _, e := range c.Env {
		value := e.Value + values[e.ValueFrom.FieldRef.FieldPath] + values[e.ValueFrom.SecretKeyRef.Key]
		expand = append(expand, "$("+e.Name+")", value)
		env = append(env, e.Name+"="+replace.Replace(value))
	}
	if len(c.Command) == 0 {
		c.Command = []string{"holdfast"} // as the Dockerfile says
	}
	args := slices.Concat(c.Command[1:], c.Args)
	for i := range args {
		args[i] = replace.Replace(strings.NewReplacer(expand...).Replace(args[i]))
	}
	cmd := exec.Command(filepath.Join(dir, c.Command[0]), args...)
	cmd.Env, cmd.Stderr = append(env, "PATH="+dir+":"+os.Getenv("PATH")), t.Output()
	out, err := cmd.StdoutPipe()
	testserver.Must(t, err, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, bufio.NewScanner(out)
}

// end wants a process to end by itself after SIGTERM, before Kubernetes would kill it.
func (p podSpec) end(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	grace := time.Duration(p.TerminationGracePeriodSeconds) * time.Second
	defer time.AfterFunc(grace, func() { cmd.Process.Kill() }).Stop()
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// TestCellManifest: the pods of the manifest, run on this host, become a cell, answer the probes, serve a client that
// has a token, and end in time.
func TestCellManifest(t *testing.T) {
	pods, n := readManifest(t, "cell.yaml")
	r, dir := released(t), t.TempDir()
	cert, key := testserver.Certificate(t, dir, "", 1)
	const principals = `{"principals": [{"name": "a", "rights": [{"prefix": "", "right": "admin"}], "tokens": [{"expires": "2099-01-01T00:00:00Z",
		"sha256": "2348f998744212575d85959674f9607ab26f67708a917157472832386337c904"}]}]}` // of the token "open"
	testserver.Must(t, os.Symlink(cert, filepath.Join(dir, "tls.crt")), os.Symlink(cert, filepath.Join(dir, "ca.crt")),
		os.Symlink(key, filepath.Join(dir, "tls.key")), os.WriteFile(filepath.Join(dir, "principals.json"), []byte(principals), 0o600))
	addrs, host := testserver.FreeAddrs(t, 2*n), []string{"/etc/holdfast", dir}
	for i := range n {
		host = append(host, fmt.Sprintf("holdfast-cell-%d.holdfast-cell:7434", i), addrs[n+i])
	}
	var members []*exec.Cmd
	for i := range n {
		own := append(host, "0.0.0.0:7433", addrs[i], "0.0.0.0:7434", addrs[n+i], "/var/lib/holdfast", filepath.Join(dir, fmt.Sprint(i)))
		cmd, _ := pods.start(t, r.bin, map[string]string{"metadata.name": fmt.Sprint("holdfast-cell-", i)}, own...)
		members = append(members, cmd)
	}
	kubelet := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // as it does
	for i := range n {
		for _, probe := range []string{pods.Containers[0].ReadinessProbe.HTTPGet.Path, pods.Containers[0].LivenessProbe.HTTPGet.Path} {
			limit := time.Now().Add(time.Minute)
			answer, err := kubelet.Get("https://" + addrs[i] + probe)
			for ; err != nil || answer.StatusCode != http.StatusOK; answer, err = kubelet.Get("https://" + addrs[i] + probe) {
				if time.Now().After(limit) {
					t.Fatalf("%s: %v, %v", probe, answer, err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	store := "HOLDFAST_STORE=cells://:open@" + strings.Join(addrs[:n], ",") + "?hf.ca=" + cert
	must(t, "", []string{store}, filepath.Join(r.bin, "holdfast"), "run", "-w", "30s", "job", "--", "true")
	for _, member := range members {
		pods.end(t, member)
	}
}

// TestElectManifest: of the pods of the manifest, run on this host, one leads. When that has got SIGTERM and its command
// has ended, another one leads at once: the TTL is 30 s.
func TestElectManifest(t *testing.T) {
	pods, n := readManifest(t, "elect.yaml")
	r, dir := released(t), t.TempDir()
	const scheduler = "#!/bin/sh\ntrap 'exit 0' TERM\necho leads\nwhile :; do sleep 0.1; done\n"
	testserver.Must(t, os.WriteFile(filepath.Join(dir, "scheduler"), []byte(scheduler), 0o755),
		os.Symlink(filepath.Join(r.bin, "holdfast"), filepath.Join(dir, "holdfast")))
	var running []*exec.Cmd
	leads, store := make(chan int, 9), "file://"+filepath.Join(dir, "store")
	for i := range n {
		cmd, out := pods.start(t, dir, map[string]string{"status.podIP": fmt.Sprint("10.0.0.", i), "store": store})
		running = append(running, cmd)
		go func() {
			if out.Scan() {
				leads <- i
			}
		}()
	}
	next := func() int {
		t.Helper()
		select {
		case pod := <-leads:
			return pod
		case <-time.After(15 * time.Second):
			t.Fatal("nobody leads")
			return 0
		}
	}
	first := next()
	leader := must(t, "", []string{"HOLDFAST_STORE=" + store}, filepath.Join(dir, "holdfast"), "leader", "scheduler")
	if want := fmt.Sprintf("10.0.0.%d:8080", first); !strings.Contains(leader, want) {
		t.Errorf("the leader is %q, want %s", leader, want)
	}
	pods.end(t, running[first])
	pods.end(t, running[next()])
}
