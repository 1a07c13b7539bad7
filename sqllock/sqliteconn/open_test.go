package sqliteconn

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"sqlite:///a.db?mode=ro":    `"mode"`,
		"sqlite://host/a.db":        "three slashes",
		"sqlite:a.db":               "three slashes",
		"sqlite:///":                "three slashes",
		"sqlite://u:s3cret@/a.db":   "three slashes",
		"sqlite:///a.db?hf.table=x": `"hf.table"`,
	} {
		u, err := url.Parse(raw)
		must(t, err)
		if _, _, err := parse(u); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: error %v does not say %q, or shows a password", raw, err, says)
		}
	}
}

// TestAwkwardFile: what means something in a URL is part of a file's name.
func TestAwkwardFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a?b #c%20&_pragma=x.db")
	must(t, dial(t, file, nil).Close())
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*.db")); len(found) != 1 || found[0] != file {
		t.Errorf("the files are %q", found)
	}
}
