//go:build linux

package docstest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestCellAPIPageNames: the page says of each reason of the API what it means, and the OpenAPI description
// has each call that the page shows.
func TestCellAPIPageNames(t *testing.T) {
	page, description := read(t, "docs/cell-api.md"), read(t, "cell/openapi.yaml")
	shown := regexp.MustCompile(`\$CELL\.(\w+/\w+)`).FindAllStringSubmatch(page, -1)
	if len(shown) == 0 {
		t.Error("the page shows no call")
	}
	for _, call := range shown {
		if !strings.Contains(description, "\n  /holdfast.cell.v1."+call[1]+":\n    post:\n") {
			t.Errorf("the OpenAPI description has no %s", call[1])
		}
	}
	for n, reason := range cellv1.Reason_name {
		if n != 0 && !strings.Contains(page, "`"+reason+"`") {
			t.Errorf("the page does not name %s", reason)
		}
	}
}
