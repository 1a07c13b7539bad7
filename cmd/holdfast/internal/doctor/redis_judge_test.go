package doctor

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/driver"
)

func TestJudgeServerClock(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	start := time.Unix(1_800_000_000, 0)
	at := func(server, before, after time.Duration) clockReading {
		return clockReading{start.Add(server), start.Add(before), start.Add(after), driver.Instant(before), driver.Instant(after)}
	}
	for _, c := range []struct {
		name string
		a, b clockReading
		want Severity
	}{
		{"exact", at(0, 0, 0), at(500*ms, 500*ms, 500*ms), OK},
		{"inside the round trips", at(100*ms, 0, 100*ms), at(500*ms, 500*ms, 600*ms), OK},
		{"slewed", at(0, 0, 0), at(501*ms, 500*ms, 500*ms), Warning},
		{"slow", at(0, 0, 0), at(480*ms, 500*ms, 500*ms), Error},
		{"fast, but the round trips may account for it", at(0, 0, 20*ms), at(510*ms, 500*ms, 520*ms), OK},
		{"set back", at(0, 0, 0), at(-time.Hour, 500*ms, 500*ms), Error},
		{"off", at(2*time.Second, 0, 0), at(2500*ms, 500*ms, 500*ms), Warning},
		{"off, but the round trips may account for it", at(1100*ms, 0, 200*ms), at(1600*ms, 500*ms, 700*ms), OK},
	} {
		if f := judgeServerClock(c.a, c.b); f.Severity != c.want {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

func TestJudgeVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Severity{
		"Redis 4.0.14": Error, "Redis 5.0.14": Warning, "Redis 6.2.19": Warning, "Redis 6.2.20": OK, "Redis 7.0.15": Warning,
		"Redis 7.2.11": OK, "Redis 8.0.3": Warning, "Redis 8.2.2": OK, "Redis 8.4.0": OK, "Redis 255.255.255": OK,
		"Redis unstable": Note, "Redis 8.0": Note, "Valkey 7.2.10": Warning, "Valkey 8.0.6": OK, "Valkey 8.1.4": OK, "Valkey 9.0.0": OK,
		"Redis 8.0.4-rc1": OK,
	} {
		program, version, _ := strings.Cut(text, " ")
		if f := judgeVersion(program, version); f.Severity != want || (want != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("%s: %+v, want %s", text, f, want)
		}
	}
}

func TestRedisTransport(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]Severity{
		"redis://": OK, "redis://localhost": OK, "redis://127.0.0.9:1": OK, "redis://[::1]": OK, "redis+unix:///run/r.sock": OK,
		"rediss://db.example.org": OK, "redis://db.example.org": Warning, "redis://:p@10.0.0.1": Warning,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if f := redisTransport(t.Context(), Patient{URL: u, Client: &holdfast.Client{}}); len(f) != 1 || f[0].Severity != want {
			t.Errorf("%s: %+v, want %s", raw, f, want)
		}
	}
}

func TestJudgeFollowers(t *testing.T) {
	for _, c := range []struct {
		follow, asked, least int
		severity             Severity
		says                 string
	}{
		{0, 0, 0, OK, "no replica follows"},
		{2, 0, 0, Warning, "do not wait"},
		{2, 0, -1, Warning, "replicas: 2, and"},
		{2, 1, 1, Warning, "others need not"},
		{2, 2, 1, OK, "any may take over"},
		{1, 2, 0, Error, "hf.replicas is 2"},
		{1, 1, 2, Error, "min-replicas-to-write is 2"},
		{0, 0, 1, Error, "min-replicas-to-write is 1"},
	} {
		f := judgeFollowers(c.follow, c.asked, c.least)
		if f.Severity != c.severity || !strings.Contains(f.Found, c.says) || (f.Severity != OK) != (f.Risk != "" && f.Remedy != "") {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
