package redislock

import (
	"strings"
	"testing"
)

func TestSetNXOptions(t *testing.T) {
	server := shared(t)
	for want, o := range map[string]*Options{
		`layout "setnxx"`: {Layout: "setnxx"},
		`wait push`:       {Layout: SetNX, Wait: Push},
	} {
		if _, err := New(t.Context(), dialResp(t, server.Addr), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
