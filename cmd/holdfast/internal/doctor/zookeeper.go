package doctor

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/zklock"
	"github.com/holdfastlock/holdfast/zklock/ensemble"
)

// zooKeeperChecks are the checks of a ZooKeeper ensemble.
var zooKeeperChecks = []Check{transportOf("zks", "on a network that others use, use zks:// and secureClientPort"), zooKeeperEnsemble}

// zooKeeperFlaws are from the releases in which ZooKeeper's history has the fix.
var zooKeeperFlaws = &flaws{
	sound:  map[string]int{"3.5": 0, "3.6": 0, "3.7": 0, "3.8": 5, "3.9": 4},
	except: []string{"3.9.2"},
	risk: "a server that joins again may lose what was acknowledged, or lead without it: " +
		"a lock may have two holders (ZOOKEEPER-3911, 4785, 4925)",
}

// zooKeeperRules judge what the servers tell.
var zooKeeperRules = []rule{
	{"quorum", Error, missing("answers"), "no server answers: ${why}", noMajority, "start the missing servers"},
	{
		"quorum", Error, func(f facts) bool { return has("standalone")(f) && f["servers"] != "1" },
		"servers that know nothing of each other are in one URL: ${standalone}",
		"each has locks of its own, so a lock may have several holders",
		"name the servers of one ensemble only: each has all of them in its zoo.cfg",
	},
	{
		"quorum", Error, func(f facts) bool { return f["answers"] == f["not serving"] },
		"no server serves: ${not serving} have no leader", noMajority, "start the missing servers, and check the network between them",
	},
	{
		"quorum", Warning, has("down"), "of the ${servers} servers of the URL these cannot be reached from here: ${down}",
		"an ensemble of ${servers} bears the loss of ${spare}", "start them, or let this host reach them",
	},
	good("quorum", "all ${servers} servers answer; the ensemble bears the loss of ${spare}"),

	good("leader", "${leader} leads and takes clients", has("leader")),
	good("leader", "${standalone} leads and takes clients", has("standalone")),
	elsewhere("leader", missing("follower")),
	{
		"leader", Warning, nil, "no server of the URL says that it leads and takes clients",
		"sessions are kept at a follower: if the leader stands still, or that follower is cut off from it, a lock may have two holders",
		"let the leader take clients (leaderServes=yes), let all answer srvr (4lw.commands.whitelist), and name all in the URL",
	},
}

// trialRules judge what a client could do.
var trialRules = []rule{
	{
		"access", Error, has("refused"), "what a lock needs was refused: ${refused}", "locks cannot be taken",
		"let the URL's user read, write, create and delete below the prefix: setAcl",
	},
	good("access", "without the URL's user nobody may delete its nodes", is("anyone", "false")),
	{
		"access", Note, nil, "a client without a user may delete the nodes of locks",
		"anyone who can reach the servers can take, release and delete any lock",
		"name a user in the URL, zk://user:password@host, leave hf.acl=open out, and give the prefix to the user: setAcl",
	},

	elsewhere("sessions", missing("shortest")),
	{
		"sessions", Error, longer("shortest", "ttl"), sessionsLast, "locks with that TTL are refused",
		"lower minSessionTimeout or tickTime in zoo.cfg, or give locks a longer TTL: hf.ttl",
	},
	{
		"sessions", Warning, longer("ttl", "longest"), sessionsLast,
		"a hold is lost after ${longest} without a renewal, earlier than its TTL says",
		"raise maxSessionTimeout in zoo.cfg, or give locks a shorter TTL: hf.ttl",
	},
	good("sessions", sessionsLast),
}

const sessionsLast = "sessions last from ${shortest} to ${longest}; the TTL of locks is ${ttl} unless they say otherwise"

func zooKeeperEnsemble(ctx context.Context, p Patient) []Finding {
	config, err := zklock.ParseURL(p.driver)
	if err != nil {
		return nil // the lock's finding says why
	}
	f := facts{}
	asking, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	for _, s := range ensemble.Ask(asking, config) {
		if s.Err != nil {
			f.add("down", s.Addr)
			f["why"] = s.Err.Error()
			continue
		}
		f.add("answers", s.Addr)
		f.add(strings.Replace(s.Role, "read-only", "not serving", 1), s.Addr) // one that only lets clients read has no leader
		f.addVersion(zooKeeperFlaws, "server "+s.Addr, s.Version)
	}
	n := len(config.Servers)
	f["servers"], f["spare"] = strconv.Itoa(n), strconv.Itoa((n-1)/2)
	findings := judge(f, slices.Concat(zooKeeperRules, versionRules)...)
	if p.Client == nil {
		return findings
	}
	f["ttl"] = cmp.Or(p.params.TTL, holdfast.DefaultTTL).String()
	if trial, err := ensemble.Try(ctx, config); err != nil {
		f["refused"] = err.Error()
	} else {
		f["shortest"], f["longest"], f["anyone"] = trial.Shortest.String(), trial.Longest.String(), strconv.FormatBool(trial.Anyone)
	}
	return append(findings, judge(f, trialRules...)...)
}
