package repocheck

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	renew    = flag.Bool("update", false, "renew the hashes by which Chinese pages know their English originals")
	chinese  = regexp.MustCompile(`^docs/zh/|\.zh\.md$`)
	original = regexp.MustCompile(`<!-- 原文: (\S+) sha256:([0-9a-f]{12}) -->`)
)

func TestChinesePagesFollowTheirOriginals(t *testing.T) {
	r, found := theRepo(t), []string{}
	for page := range r.texts {
		if !chinese.MatchString(page) {
			continue
		}
		wrong, renewed := outdated(r.texts, page)
		if !*renew {
			found = append(found, wrong...)
		} else if err := os.WriteFile("../../../"+page, []byte(renewed), 0o644); err != nil {
			t.Error(err)
		}
	}
	report(t, "Chinese pages follow their originals: mend the page, then renew its hash by go test ./internal/test/repocheck -run Chinese -update", found)
}

// outdated finds what has changed in the originals that a page names, and returns the page with the hashes of today.
func outdated(texts map[string]string, page string) (found []string, text string) {
	if text = texts[page]; !original.MatchString(text) {
		found = append(found, page+" has no line such as <!-- 原文: README.md sha256:000000000000 -->")
	}
	for _, m := range original.FindAllStringSubmatch(text, -1) {
		words := strings.Join(strings.Fields(texts[m[1]]), " ") // where lines break does not count
		if hash := fmt.Sprintf("%.6x", sha256.Sum256([]byte(words))); words == "" {
			found = append(found, page+": there is no "+m[1])
		} else if hash != m[2] {
			found = append(found, fmt.Sprintf("%s: %s has changed: git diff $(git log -1 --format=%%h -S%s -- :/%[1]s) -- :/%[2]s", page, m[1], m[2]))
			text = strings.Replace(text, m[0], strings.Replace(m[0], m[2], hash, 1), 1)
		}
	}
	return found, text
}

func TestOutdated(t *testing.T) {
	texts := map[string]string{"a.md": "one\ntwo", "new": "<!-- 原文: a.md sha256:8ab63e29a4ba -->", "old": "<!-- 原文: a.md sha256:000000000000 --><!-- 原文: b.md sha256:000000000000 -->", "bare": ""}
	for page, wrong := range map[string][]string{"new": nil, "old": {"old: a.md has changed", "old: there is no b.md"}, "bare": {"bare has no line"}} {
		found, renewed := outdated(texts, page)
		if expect(t, found, wrong...); page == "old" && !strings.HasPrefix(renewed, texts["new"]) {
			t.Errorf("renewed is %q", renewed)
		}
	}
}
