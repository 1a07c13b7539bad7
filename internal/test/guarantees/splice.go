package guarantees

import (
	"bytes"
	"fmt"
)

// Splice returns the text with table between the markers of the table of stores, instead of what
// was there. It is an error if there is not one of each, in order.
func Splice(text, table []byte) ([]byte, error) { return SplicePart(text, "stores", table) }

// SplicePart does the same between the markers of another part.
func SplicePart(text []byte, part string, table []byte) ([]byte, error) {
	begin, end := []byte("<!-- "+part+":begin -->\n"), []byte("<!-- "+part+":end -->")
	before, rest, ok := bytes.Cut(text, begin)
	_, after, ok2 := bytes.Cut(rest, end)
	if !ok || !ok2 || bytes.Contains(after, begin) || bytes.Contains(after, end) {
		return nil, fmt.Errorf("the text has not one %s and, after it, one %s", begin[:len(begin)-1], end)
	}
	return bytes.Join([][]byte{before, begin, table, end, after}, nil), nil
}
