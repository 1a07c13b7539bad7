package repocheck

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fences    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	spans     = regexp.MustCompile("`[^`\n]*`")
	links     = regexp.MustCompile(`\]\(([^()\s]+)\)|(?m)^\[[^\]]+\]: (\S+)`)
	headings  = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	linkTexts = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	slugless  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

func TestLinksResolve(t *testing.T) {
	r := theRepo(t)
	found, seen := brokenLinks(r.texts)
	if seen < 50 {
		t.Errorf("%d links inside of the repository were found: the search is wrong", seen)
	}
	report(t, "a link of a page inside of the repository leads to a file, and to a heading that is there", found)
}

// brokenLinks finds links in Markdown that lead nowhere, and counts those that it has followed.
func brokenLinks(texts map[string]string) (found []string, seen int) {
	for _, page := range slices.Sorted(maps.Keys(texts)) {
		if path.Ext(page) != ".md" {
			continue
		}
		prose := spans.ReplaceAllString(fences.ReplaceAllString(texts[page], ""), "")
		for _, m := range links.FindAllStringSubmatch(prose, -1) {
			target := m[1] + m[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			seen++
			file, anchor, _ := strings.Cut(target, "#")
			name := page
			if file != "" {
				name = path.Join(path.Dir(page), file)
			}
			if !exists(texts, name) {
				found = append(found, fmt.Sprintf("%s: there is no %s", page, target))
			} else if anchor != "" && path.Ext(name) == ".md" && !slices.Contains(anchors(texts[name]), anchor) {
				found = append(found, fmt.Sprintf("%s: %s has no heading %s", page, name, anchor))
			}
		}
	}
	return found, seen
}

// exists reports whether there is a file of a name, or a directory with one.
func exists(texts map[string]string, name string) bool {
	if _, ok := texts[name]; ok {
		return true
	}
	for have := range texts {
		if strings.HasPrefix(have, name+"/") {
			return true
		}
	}
	return false
}

// anchors returns the anchors that hosts of repositories make of a page's headings.
func anchors(page string) (all []string) {
	times := map[string]int{}
	for _, m := range headings.FindAllStringSubmatch(fences.ReplaceAllString(page, ""), -1) {
		text := linkTexts.ReplaceAllString(strings.TrimSpace(m[1]), "$1")
		slug := strings.ReplaceAll(slugless.ReplaceAllString(strings.ToLower(text), ""), " ", "-")
		if n := times[slug]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", slug, n))
		} else {
			all = append(all, slug)
		}
		times[slug]++
	}
	return all
}

func TestBrokenLinks(t *testing.T) {
	texts := map[string]string{
		"docs/a.md": "# A `b`, c\n## See [x](y.md)!\n## A b c\n[1](b.md) [2](#a-b-c) [3](#see-x) [4](#a-b-c-1) [5](../LICENSE) [6](https://x.org/y) [7](adr) `[8](no.md)`\n" +
			"```\n[9](no.md)\n```\n![10](no.svg) [11](#no) [12](b.md#no)\n[n]: none.md\n",
		"docs/b.md": "", "docs/y.md": "", "docs/adr/1.md": "", "LICENSE": "",
	}
	found, seen := brokenLinks(texts)
	expect(t, found, "docs/a.md: there is no no.svg", "docs/a.md: docs/a.md has no heading no", "docs/a.md: docs/b.md has no heading no", "docs/a.md: there is no none.md")
	if seen != 11 {
		t.Errorf("%d links were followed, want 11", seen)
	}
}
