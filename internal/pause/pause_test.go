package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if !Sleep(ctx, time.Millisecond) || time.Since(start) != time.Millisecond {
			t.Errorf("slept for %v", time.Since(start))
		}
		if Sleep(ctx, time.Hour) || time.Since(start) != time.Second {
			t.Errorf("the context ended after 1 s, Sleep after %v", time.Since(start))
		}
	})
}

func TestBackoff(t *testing.T) {
	b := Backoff{Min: 10 * time.Millisecond, Max: 35 * time.Millisecond}
	for range 2 {
		for i, want := range []time.Duration{10, 20, 35, 35} {
			want *= time.Millisecond
			if d := b.Next(); d < want/2 || d > want {
				t.Errorf("pause %d is %v, want half of %v to %v", i, d, want, want)
			}
		}
		b.Reset()
	}
}
