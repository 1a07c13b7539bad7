package guarantees

import (
	"bytes"
	"errors"
)

// The markers between which the table of stores stands in the README.
const (
	begin = "<!-- stores:begin -->\n"
	end   = "<!-- stores:end -->"
)

// Splice returns the text with table between its markers, instead of what was
// there. It is an error if there is not one of each, in order.
func Splice(text, table []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(text, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 || bytes.Contains(after, []byte(begin)) || bytes.Contains(after, []byte(end)) {
		return nil, errors.New("the text has not one " + begin[:len(begin)-1] + " and, after it, one " + end)
	}
	return bytes.Join([][]byte{before, []byte(begin), table, []byte(end), after}, nil), nil
}
