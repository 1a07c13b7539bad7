package wire

import (
	"bytes"
	"reflect"
	"runtime"
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

// TestPiecesCost: a long reply in many pieces is read once, not once for each piece.
func TestPiecesCost(t *testing.T) {
	const values = 100_000
	text := append([]byte("*100000\r\n"), bytes.Repeat([]byte("$6\r\nabcdef\r\n"), values)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := &parser{}
	for n := 64; ; n += 64 {
		r, size, err := p.next(text[:min(n, len(text))])
		if err != nil {
			t.Fatal(err)
		}
		if size > 0 {
			if items, _ := r.Value.([]any); len(items) != values {
				t.Errorf("the reply has %d values", len(items))
			}
			break
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / values; each > 200 {
		t.Errorf("each value of a reply in %d pieces took %d bytes", len(text)/64, each)
	}
}
