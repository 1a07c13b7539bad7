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
var fileChecks = []Check{fileDirectory, filePlace, fileRecords}

// fileDirectory asks the store's own check: file system, clock, permissions.
func fileDirectory(_ context.Context, p Patient) []Finding {
	dir := filepath.FromSlash(p.URL.Path)
	severity, risk := Warning, "locks work now, but others may damage them"
	if p.Client == nil { // a problem that breaks locks also prevents the store from being opened
		severity, risk = Error, "locks here would exclude nobody, or cannot be taken"
	}
	return judgeDirectory(dir, filelock.CheckDir(dir), severity, risk)
}

// judgeDirectory returns a finding for each problem of a directory.
func judgeDirectory(dir string, problems []string, severity Severity, risk string) (findings []Finding) {
	for _, problem := range problems {
		findings = append(findings, Finding{
			"directory", severity, problem, risk,
			"use a directory on a local disk that belongs to the user who runs the jobs, with mode 0700, or 0770 and a common group",
		})
	}
	if findings == nil {
		return judge(facts{"dir": dir}, good("directory", "${dir} is on a local file system, and this user may use it"))
	}
	return findings
}

// filePlace checks that the system does not delete the records, as it does with old temporary files.
func filePlace(_ context.Context, p Patient) []Finding {
	f := facts{"dir": filepath.FromSlash(p.URL.Path)}
	if real, err := filepath.EvalSymlinks(f["dir"]); err == nil {
		f["dir"] = real
	}
	for _, place := range []string{"/tmp", "/var/tmp", "/dev/shm", filepath.Clean(os.TempDir())} {
		if strings.HasPrefix(f["dir"]+"/", place+"/") {
			f["swept"] = place
		}
	}
	return judge(f,
		good("place", "${dir} is not where temporary files are deleted", missing("swept")),
		rule{
			"place", Warning, nil, "${dir} is in ${swept}", "old files are deleted there on many systems, and with them the locks",
			"use a directory that lasts, such as /var/lib/holdfast, or the default store",
		})
}

// fileRecords reads all records.
func fileRecords(ctx context.Context, p Patient) []Finding {
	if p.Client == nil {
		return nil // the lock's finding says why
	}
	names := 0
	for _, err := range p.Client.List(ctx, "") {
		if err != nil {
			return []Finding{{
				"records", Error, err.Error(), "the lock of this record can neither be taken nor seen, and those after it are not listed",
				"make sure that nobody runs under that lock, then delete its file",
			}}
		}
		names++
	}
	return []Finding{{Check: "records", Severity: OK, Found: fmt.Sprintf("all records can be read; names in use: %d", names)}}
}
