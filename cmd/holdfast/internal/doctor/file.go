package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfastlock/holdfast/filelock"
)

// fileChecks are the checks of a directory of locks.
var fileChecks = []Check{fileDirectory, filePlace, fileSpace, fileRecords}

// fileDirectory asks the store's own check: file system, clock, permissions.
func fileDirectory(_ context.Context, p Patient) []Finding {
	dir := filepath.FromSlash(p.URL.Path)
	// A problem that breaks locks also prevents the store from being opened. Others are warnings.
	if p.Client == nil {
		return judgeDirectory(dir, filelock.CheckDir(dir), Error,
			"locks here would exclude nobody, or cannot be taken")
	}
	return judgeDirectory(dir, filelock.CheckDir(dir), Warning,
		"locks work now, but others may damage them")
}

// judgeDirectory returns a finding for each problem of a directory.
func judgeDirectory(dir string, problems []string, severity Severity, risk string) []Finding {
	const check = "directory"
	if len(problems) == 0 {
		return good(check, "%s is on a local file system, and this user may use it", dir)
	}
	var findings []Finding
	for _, problem := range problems {
		findings = append(findings, Finding{
			Check: check, Severity: severity, Found: problem, Risk: risk,
			Remedy: "use a directory on a local disk that belongs to the user who runs the jobs, " +
				"with mode 0700, or 0770 and a common group",
		})
	}
	return findings
}

// sweptDirs are directories in which systems delete old files.
var sweptDirs = []string{"/tmp", "/var/tmp", "/dev/shm"}

// filePlace checks that the system does not delete the records.
func filePlace(_ context.Context, p Patient) []Finding {
	dir := filepath.FromSlash(p.URL.Path)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for _, place := range append(sweptDirs, filepath.Clean(os.TempDir())) {
		if strings.HasPrefix(dir+"/", place+"/") {
			return []Finding{{
				Check: "place", Severity: Warning, Found: fmt.Sprintf("%s is in %s", dir, place),
				Risk:   "old files are deleted there on many systems, and with them the locks",
				Remedy: "use a directory that lasts, such as /var/lib/holdfast, or the default store",
			}}
		}
	}
	return []Finding{{Check: "place", Severity: OK, Found: dir + " is not where temporary files are deleted"}}
}

// fileRecords reads all records.
func fileRecords(ctx context.Context, p Patient) []Finding {
	const check = "records"
	if p.Client == nil {
		return nil // the lock's finding says why
	}
	names := 0
	for _, err := range p.Client.List(ctx, "") {
		if err != nil {
			return []Finding{{
				Check: check, Severity: Error, Found: err.Error(),
				Risk:   "the lock of this record can neither be taken nor seen, and those after it are not listed",
				Remedy: "make sure that nobody runs under that lock, then delete its file",
			}}
		}
		names++
	}
	return []Finding{{Check: check, Severity: OK, Found: fmt.Sprintf("all records can be read; "+
		"names in use: %d", names)}}
}
