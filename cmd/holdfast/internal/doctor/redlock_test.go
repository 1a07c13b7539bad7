package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast/internal/testserver"
)

// TestRedlock: each server of a Redlock is examined, and one that is dead is named.
func TestRedlock(t *testing.T) {
	third := redisOf(t, testserver.RedisOptions{AOF: true})
	durable := redisOf(t, testserver.RedisOptions{AOF: true})
	forgetful := redisOf(t, testserver.RedisOptions{})
	wrong := redisOf(t, testserver.RedisOptions{AOF: true, Clock: true})
	dead := redisOf(t, testserver.RedisOptions{})
	wrong.Clock.Set(time.Minute)
	dead.Kill()
	found := examine(t, "redlock://default:"+password+"@"+strings.Join([]string{third.Addr, durable.Addr, forgetful.Addr, wrong.Addr, dead.Addr}, ","))
	for check, want := range map[string]Severity{
		"clock":                            OK,
		"connection of " + dead.Addr:       Warning,
		"persistence of " + durable.Addr:   OK,
		"persistence of " + forgetful.Addr: Note,
		"server clock of " + durable.Addr:  OK,
		"server clock of " + wrong.Addr:    Warning,
		"lock":                             Error, // the servers are new, and nobody has said so
	} {
		if f := found[check]; f.Severity != want {
			t.Errorf("%s: %+v, want %s", check, f, want)
		}
	}
	found = examine(t, "redlock://default:"+password+"@"+strings.Join([]string{third.Addr, durable.Addr, forgetful.Addr}, ",")+"?hf.durable=yes")
	for check, want := range map[string]Severity{
		"persistence of " + durable.Addr:   OK,
		"persistence of " + forgetful.Addr: Error,
		"lock":                             OK,
	} {
		if f := found[check]; f.Severity != want {
			t.Errorf("hf.durable: %s: %+v, want %s", check, f, want)
		}
	}
}
