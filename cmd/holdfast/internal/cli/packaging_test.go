package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPackagingFlags: units and manifests name flags that their commands have, as flags or in the environment.
func TestPackagingFlags(t *testing.T) {
	var a app
	serve, elect, seen := a.serveCommand().Flags(), a.electCommand().Flags(), 0
	used := regexp.MustCompile(`[ ,]--([a-z][a-z-]+)|HOLDFAST_SERVE_([A-Z_]+)|# .* --.*`)
	for _, pattern := range []string{"*.service", "kubernetes/*.yaml"} {
		files, _ := filepath.Glob(filepath.Join("../../../../packaging", pattern))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range used.FindAllStringSubmatch(string(text), -1) {
				flag := m[1] + strings.ToLower(strings.ReplaceAll(m[2], "_", "-"))
				if seen++; flag != "" && serve.Lookup(flag) == nil && (m[1] == "" || elect.Lookup(flag) == nil) {
					t.Errorf("%s: there is no flag --%s", file, flag)
				}
			}
		}
	}
	if seen < 15 {
		t.Errorf("%d flags were found", seen)
	}
}
