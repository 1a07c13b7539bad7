package doctor

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// redisTransport checks that passwords and tokens do not cross a network unencrypted.
func redisTransport(_ context.Context, p Patient) []Finding {
	if p.Client == nil {
		return nil // nothing has been sent: the lock's finding says why
	}
	if strings.HasPrefix(p.URL.Scheme, "rediss") {
		return good("transport", "the connection is encrypted and the server's certificate is checked")
	}
	if hosts := strings.Split(p.URL.Host, ","); len(hosts) > 1 {
		return redisHosts(hosts)
	}
	return encrypted(p, false,
		"let the server listen with TLS and use rediss://, unless the network itself is encrypted")
}

// redisHosts is redisTransport for several hosts without TLS.
func redisHosts(hosts []string) []Finding {
	for _, host := range hosts {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if !onThisHost(host) {
			u := &url.URL{Host: host}
			return encrypted(Patient{URL: u}, false, "let the servers listen with TLS and use a URL that begins with rediss+, unless the network itself is encrypted")
		}
	}
	return good("transport", "the servers are on this host, so nothing crosses a network")
}

// onThisHost reports whether the host of a URL is certainly this one.
func onThisHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// release is a version of the server.
type release [3]int

// fixed are the first releases of each line without CVE-2025-49844: a use after free in the Lua
// interpreter, by which users who may run scripts can run any code.
var fixed = map[string][]release{
	"Redis":  {{6, 2, 20}, {7, 2, 11}, {7, 4, 6}, {8, 0, 4}, {8, 2, 2}},
	"Valkey": {{7, 2, 11}, {8, 0, 6}, {8, 1, 4}},
}

// oldest is the first version in which a script may write after it has read the clock without a
// special call.
var oldest = release{5, 0, 0}

func redisVersion(_ context.Context, r *redisServer) []Finding {
	program, text := "Redis", r.info["redis_version"]
	if valkey := r.info["valkey_version"]; valkey != "" {
		program, text = "Valkey", valkey
	}
	if text == "" {
		return notVisible("version", "its version", "old versions cannot run the scripts, or "+
			"have known vulnerabilities")
	}
	return []Finding{judgeVersion(program, text)}
}

func judgeVersion(program, text string) Finding {
	f := Finding{Check: "version", Severity: OK, Found: program + " " + text}
	v, ok := parseRelease(text)
	switch {
	case !ok:
		f.Severity, f.Found = Note, f.Found+": not a version that is known here"
		f.Risk, f.Remedy = "its vulnerabilities are not known here", "see its makers' security advisories"
	case v.before(oldest):
		f.Severity = Error
		f.Risk, f.Remedy = "its scripts may not write after they have read the clock: no lock "+
			"can be taken", "use version 5 or later"
	case v.vulnerable(fixed[program]):
		f.Severity = Warning
		f.Found += ": in its makers' release of that number a script can break out of the " +
			"interpreter (CVE-2025-49844)"
		f.Risk = "users who may run scripts can run any code as the server"
		f.Remedy = "use the newest release of the line, or see whether your distribution has " +
			"fixed it under the old number; let nobody in without a password"
	}
	return f
}

func parseRelease(text string) (v release, ok bool) {
	n, _ := fmt.Sscanf(text, "%d.%d.%d", &v[0], &v[1], &v[2])
	return v, n == len(v)
}

func (v release) before(w release) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

// vulnerable reports whether a release is older than the fixed one of its line. A line without a
// fixed release is vulnerable, unless it is newer than all of them.
func (v release) vulnerable(fixes []release) bool {
	for _, fix := range fixes {
		if v[0] == fix[0] && v[1] == fix[1] {
			return v.before(fix)
		}
	}
	return len(fixes) > 0 && v.before(fixes[len(fixes)-1])
}

// redisPlace checks that the server can keep locks: it is a master, and a node of a cluster only if the
// URL is of one.
func redisPlace(_ context.Context, r *redisServer) []Finding {
	const check = "role"
	f := Finding{Check: check, Severity: Error}
	switch {
	case r.info["redis_mode"] == "sentinel":
		f.Found = "this is a Sentinel, not a server with data"
		f.Risk = "no lock can be taken here"
		f.Remedy = "use redis+sentinel://, with the name by which the sentinels know the master"
	case r.info["role"] == "slave":
		f.Found = fmt.Sprintf("this is a replica of %s:%s", r.info["master_host"], r.info["master_port"])
		f.Risk = "it takes no writes, and if it did its master would overwrite them"
		f.Remedy = "name the master's address"
	case r.cluster:
		return good(check, "this is a master of the cluster")
	case r.info["cluster_enabled"] == "1":
		f.Found = "this is a node of a Redis Cluster"
		f.Risk = "locks whose names belong to another node cannot be taken"
		f.Remedy = "use redis+cluster://"
	case r.info["role"] == "":
		return notVisible(check, "its role", "a replica takes no locks")
	default:
		return good(check, "this is a master, and not a node of a cluster")
	}
	return []Finding{f}
}
