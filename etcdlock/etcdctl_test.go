//go:build soak

package etcdlock

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestEtcdctl: "etcdctl lock" and our locks keep one another out, and pass the
// name on to one another.
func TestEtcdctl(t *testing.T) {
	program := testserver.Need(t, "etcdctl", "etcd-client")
	server := testserver.StartEtcd(t, testserver.EtcdOptions{Election: quick})
	locks, err := holdfast.Open(t.Context(), "etcd://"+server.Addrs()+"?hf.layout=stock")
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	ours := locks.Mutex("orders/42", nil)
	etcdctl := func(command ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--endpoints", server.Addrs(), "lock", "orders/42"}, command...)...)
		cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &said
	}

	lease, err := ours.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mark := t.TempDir() + "/mark"
	waits, said := etcdctl("touch", mark)
	waiters(t, locks, "orders/42", 1)
	if _, err := os.Stat(mark); err == nil {
		t.Error("P1: etcdctl got what ours holds")
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if err := waits.Wait(); err != nil {
		t.Errorf("P7: etcdctl, which waited for ours: %v\n%s", err, said)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("P7: etcdctl has not run its command: %v", err)
	}

	holds, _ := etcdctl() // until it is interrupted
	for info, err := range locks.Watch(t.Context(), "orders/42") {
		if err != nil {
			t.Fatal(err)
		}
		if !info.Idle() {
			break
		}
	}
	if _, err := ours.TryAcquire(t.Context()); !errors.Is(err, holdfast.ErrHeld) {
		t.Errorf("P1: what etcdctl holds was granted: %v", err)
	}
	if err := holds.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if lease, err = ours.Acquire(t.Context()); err != nil {
		t.Fatalf("P7: after etcdctl was interrupted: %v", err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	holds.Wait() // it says that it was interrupted
}
