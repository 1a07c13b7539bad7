package cell

import (
	"testing"

	"github.com/holdfastlock/holdfast/cell/cellv1"
)

// TestMissedAnswers: an answer with nothing in it says by its cursor that something was told before. If that answer
// was lost, this one does not count: the client asks for all, and does not believe that it has lost nothing (P2).
func TestMissedAnswers(t *testing.T) {
	for what, c := range map[string]struct {
		answer *cellv1.KeepAliveResponse
		counts bool
	}{
		"nothing is new":        {&cellv1.KeepAliveResponse{Cursor: "s:3"}, true},
		"the next event":        {&cellv1.KeepAliveResponse{Cursor: "s:4", Events: []*cellv1.Event{{Number: 4}}}, true},
		"an event is missing":   {&cellv1.KeepAliveResponse{Cursor: "s:5", Events: []*cellv1.Event{{Number: 5}}}, false},
		"all was told before":   {&cellv1.KeepAliveResponse{Cursor: "s:4"}, false},
		"all is told":           {&cellv1.KeepAliveResponse{Cursor: "s:5", Complete: true}, true},
		"all is told elsewhere": {&cellv1.KeepAliveResponse{Cursor: "o:0", Complete: true}, true},
		"of another member":     {&cellv1.KeepAliveResponse{Cursor: "o:0"}, false},
	} {
		s := &Session{cursor: "s:3", observer: silent{}}
		if s.tell(c.answer) != c.counts || (s.cursor == "") == c.counts {
			t.Errorf("%s: it counts: %t; the next call has the cursor %q", what, !c.counts, s.cursor)
		}
	}
}
