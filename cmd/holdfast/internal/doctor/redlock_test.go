//go:build soak

package doctor

import (
	"slices"
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
	} {
		if f := found[check]; f.Severity != want {
			t.Errorf("hf.durable: %s: %+v, want %s", check, f, want)
		}
	}
}

// TestRedlockAccess takes every permission that a Redlock needs away in turn, at one server of three.
func TestRedlockAccess(t *testing.T) {
	t.Parallel()
	servers := []*testserver.Redis{redisOf(t, testserver.RedisOptions{}), redisOf(t, testserver.RedisOptions{}), redisOf(t, testserver.RedisOptions{})}
	var addresses []string
	grant := func(i int, user string, rules ...string) {
		ask := admin(t, redisURL(servers[i].Addr, ""))
		ask(append([]string{"ACL", "SETUSER", user, "on", ">" + password, "&holdfast:*"}, rules...)...)
	}
	enough := append(strings.Fields(rules()), "~holdfast:*", "+info")
	narrow := slices.Concat(strings.Fields(rules()), []string{"+info", "~holdfast:{*", "~holdfast:store"})
	for i, s := range servers {
		addresses = append(addresses, s.Addr)
		grant(i, "enough", enough...)
		for user, without := range map[string][]string{
			"noinfo": {"-info"}, "nokeys": nil,
		} {
			switch {
			case i != 1:
				grant(i, user, enough...)
			case without == nil:
				grant(i, user, narrow...)
			default:
				grant(i, user, slices.Concat(enough, without)...)
			}
		}
	}
	url := func(user string) string {
		return "redlock://" + user + ":" + password + "@" + strings.Join(addresses, ",")
	}
	found := examine(t, url("enough"))
	for _, address := range addresses {
		expect(t, found, want{"votes of " + address, OK, "may do"})
	}
	for user, says := range map[string]string{
		"noinfo": "INFO server", "nokeys": "GET holdfast:memory, EVAL",
	} {
		found := examine(t, url(user))
		expect(t, found, want{"votes of " + addresses[0], OK, ""}, want{"votes of " + addresses[1], Error, "user \"" + user + "\" was refused: " + says})
	}
	// Durable servers need none of it.
	if f, ok := examine(t, url("noinfo")+"?hf.durable=yes")["votes of "+addresses[1]]; ok {
		t.Errorf("of a durable server: %+v", f)
	}
}
