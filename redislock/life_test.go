package redislock

import (
	"testing"
	"time"
)

// TestPresent: P1: a life is one start of a server, whatever the server has stored: Redis before 7 stores its
// cache of scripts, too. FLUSHALL begins another life.
func TestPresent(t *testing.T) {
	const stored = "abc123 30000 "
	read := func(run, memory string) present {
		t.Helper()
		p, err := presentOf(&Reply{Value: "# Server\r\nredis_version:6.2.14\r\nrun_id:" + run + "\r\ntcp_port:6379\r\n"}, &Reply{Value: memory})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := read("aaaa", stored)
	if first.life == 0 || first.admitted || first.longest != 30*time.Second || read("aaaa", stored) != first {
		t.Errorf("the life is %+v", first)
	}
	admitted := stored + lifeText(first.life)
	if p := read("aaaa", admitted); !p.admitted || p.life != first.life {
		t.Errorf("a life that was admitted is %+v, after %+v", p, first)
	}
	if p := read("bbbb", admitted); p.life == first.life || p.admitted {
		t.Errorf("after a restart that brought all data back the life is %+v, before it was %+v", p, first)
	}
	if p := read("aaaa", "def456 30000 "); p.life == first.life {
		t.Error("another random number is no other life")
	}
	if p := read("aaaa", ""); p.life != 0 {
		t.Errorf("without a random number the life is %+v", p)
	}
	if _, err := presentOf(&Reply{Value: "# Server\r\n"}, &Reply{Value: stored}); err != errNoRun {
		t.Errorf("of a server without run_id: %v", err)
	}
}
