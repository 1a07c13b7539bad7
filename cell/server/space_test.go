package server

import (
	"io"
	"net/http"
	"testing"
)

// get returns what a page of a member says.
func get(t *testing.T, m *Member, page string) (code int, text string) {
	t.Helper()
	resp, err := http.Get("http://" + m.Addr() + page)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
