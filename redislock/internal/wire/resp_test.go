package wire

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Reply{
		"+OK\r\n":                         {Value: "OK"},
		":-12\r\n":                        {Value: int64(-12)},
		"$5\r\na\r\nb\x00\r\n":            {Value: "a\r\nb\x00"},
		"$0\r\n\r\n":                      {Value: ""},
		"$-1\r\n":                         {},
		"*-1\r\n":                         {},
		"*0\r\n":                          {Value: []any{}},
		"*3\r\n:1\r\n$-1\r\n*1\r\n+a\r\n": {Value: []any{int64(1), nil, []any{"a"}}},
		"-ERR no such thing\r\n":          {Err: &ServerError{Text: "no such thing"}},
		"-NOAUTH who are you\r\n":         {Err: &ServerError{Text: "NOAUTH who are you"}},
	} {
		for n := range text {
			if r, size, err := new(parser).next([]byte(text[:n])); size != 0 || err != nil {
				t.Errorf("%q is %+v of %d bytes, %v; it is not complete", text[:n], r, size, err)
			}
		}
		if r, size, err := new(parser).next([]byte(text + "+more")); size != len(text) || err != nil || !reflect.DeepEqual(r, want) {
			t.Errorf("%q is %+v of %d bytes, %v; want %+v of %d", text, r, size, err, want, len(text))
		}
	}
	for _, text := range []string{"\n", "HTTP/1.1 400 Bad Request\r\n", ":x\r\n", "$x\r\n", "%1\r\n+a\r\n+b\r\n", "%", "\x00", "+OK\n", "$-2\r\n", "*-2\r\n", "$1\r\nabc", "$9223372036854775807\r\n", "*9223372036854775807\r\n", "$1048577\r\n", "*1048577\r\n", "*1048576\r\n*1\r\n", "+" + strings.Repeat("x", longestLine), "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"} {
		if r, size, err := new(parser).next([]byte(text)); err == nil {
			t.Errorf("%q is %+v of %d bytes, and no reply", text, r, size)
		}
	}
}
