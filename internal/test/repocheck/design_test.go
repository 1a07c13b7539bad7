package repocheck

import (
	"strings"
	"testing"
	"unicode"
)

// mostSpoken is how many words can be read aloud in ten minutes.
const mostSpoken = 1600

func TestDesignIsShort(t *testing.T) {
	if n := spoken(theRepo(t).texts[promisesPage]); n == 0 || n > mostSpoken {
		t.Errorf("%s has %d words, without code and the table of promises: at most %d can be read aloud in ten minutes. "+
			"What is finer belongs in the documentation of its package", promisesPage, n, mostSpoken)
	}
}

// spoken counts the words of a page, without code, and only up to the table of promises.
func spoken(text string) (n int) {
	code := false
	for line := range strings.Lines(text) {
		switch m := anyHeading.FindStringSubmatch(strings.TrimSpace(line)); {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code:
		case m != nil && m[1] == promisesHeading:
			return n
		default:
			for word := range strings.FieldsSeq(line) {
				if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
					n++
				}
			}
		}
	}
	return n
}

func TestSpoken(t *testing.T) {
	text := "# One\n\ntwo, | three |\n```go\nnever mind\n```\n- four (`5`)\n## 10. " + promisesHeading + "\nnot counted\n"
	if n := spoken(text); n != 5 {
		t.Errorf("%q has %d words, want 5", text, n)
	}
}
