package wire

import (
	"reflect"
	"strings"
	"testing"
)

// TestPieces: a reply that comes byte by byte is the same as one that comes at once.
func TestPieces(t *testing.T) {
	text := []byte("*4\r\n:1\r\n$-1\r\n*2\r\n+" + strings.Repeat("a", 50) + "\r\n*0\r\n$5\r\nb\r\nc\x00\r\n-NOAUTH who are you\r\n$0\r\n\r\n")
	var whole, parts []any
	collect := func(p *parser, to *[]any, from int, until int) int {
		for from < until {
			r, size, err := p.next(text[from:until])
			if err != nil {
				t.Fatal(err)
			}
			if size == 0 {
				break
			}
			*to, from = append(*to, r), from+size
		}
		return from
	}
	collect(&parser{}, &whole, 0, len(text))
	p, from := &parser{}, 0
	for n := range text {
		from = collect(p, &parts, from, n+1)
	}
	if len(whole) != 3 || from != len(text) || !reflect.DeepEqual(whole, parts) {
		t.Errorf("at once %v, in pieces %v", whole, parts)
	}
}
