package sqliteconn

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

func init() { parts["writer"] = writer }

// writer takes the lock for which the processes line up, and keeps it.
func writer(args []string) error {
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
		return err
	}
	fmt.Println("locked")
	time.Sleep(time.Minute)
	return f.Close()
}
