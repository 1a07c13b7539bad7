package doctor

// redisRules judge one server: what it would forget (P1, P3), and whether it lets locks be taken at all.
var redisRules = []rule{
	unseen("version", "its version", "old versions cannot run the scripts", "version"),
	{
		"version", Error, before("version", release{5, 0, 0}), "${program} ${version}",
		"its scripts may not write after they have read the clock: no lock can be taken", "use version 5 or later",
	},
	good("version", "${program} ${version}"),

	{
		"role", Error, is("redis_mode", "sentinel"), "this is a Sentinel, not a server with data", noLock,
		"use redis+sentinel://, with the name by which the sentinels know the master",
	},
	{
		"role", Error, is("role", "slave"), "this is a replica of ${master_host}:${master_port}",
		"it takes no writes, and if it did its master would overwrite them", "name the master's address",
	},
	{
		"role", Error, all(is("cluster_enabled", "1"), missing("in cluster")), "this is a node of a Redis Cluster",
		"locks whose names belong to another node cannot be taken", "use redis+cluster://",
	},
	unseen("role", "its role", "a replica takes no locks", "role"),
	good("role", "this is a master"),

	elsewhere("replicas", noMaster),
	unseen("replicas", "its replicas", "a replica that takes over may not know the locks that are held", "role"),
	{
		"replicas", Error, less("follow", "min-replicas-to-write"), "${replicas}",
		"the server refuses all writes: no lock can be taken, renewed or released",
		"connect more replicas, or lower min-replicas-to-write",
	},
	{
		"replicas", Error, less("follow", "hf.replicas"), "${replicas}; hf.replicas is ${hf.replicas}",
		"too few can acknowledge a lock: none can be taken or renewed", "connect more replicas, or lower hf.replicas",
	},
	good("replicas", "no replica follows, so none can take over with old data", is("follow", "0")),
	{
		"replicas", Warning, is("hf.replicas", "", "0"), "${replicas}, and locks do not wait until they have them",
		"if a replica takes over, locks of the last moments before are forgotten and can be taken a second time; " +
			"if its clock is behind, tokens are lower than before",
		"ask by hf.replicas in the store URL for as many replicas as there are; " +
			"or guard what must not break by fencing tokens; or let no replica take over by itself",
	},
	{
		"replicas", Warning, less("hf.replicas", "follow"),
		"${replicas}; hf.replicas is ${hf.replicas}: the others need not have acknowledged a lock",
		"if one of the others takes over, locks of the last moments before are forgotten and can be taken a second time",
		"let only the most advanced replica take over; or ask for ${follow} by hf.replicas, and then no lock can be " +
			"taken while one is down; or guard what must not break by fencing tokens",
	},
	good("replicas", "${replicas}; each of them must acknowledge a lock (hf.replicas is ${hf.replicas}), so any may take over; "+
		"while one is down, or when one has taken over, none can be taken until as many follow again"),

	unseen("eviction", "maxmemory-policy", "with any policy but noeviction, held locks are deleted when memory is short",
		"maxmemory-policy", "maxmemory"),
	good("eviction", "nothing is evicted: maxmemory-policy is noeviction", is("maxmemory-policy", "noeviction")),
	{
		"eviction", Note, is("maxmemory", "0"), "maxmemory-policy is ${maxmemory-policy}, but maxmemory is not set, so nothing is evicted",
		"once maxmemory is set, held locks may be deleted", noEviction,
	},
	{
		"eviction", Error, nil, "maxmemory-policy is ${maxmemory-policy}, and maxmemory is set; keys evicted so far: ${evicted_keys}",
		"when memory is short the server deletes locks that are held, and others take them", noEviction,
	},

	unseen("persistence", "its persistence", "after a restart, locks may be forgotten and taken a second time", "appendonly"),
	good("persistence", "each write is on disk before it is answered (appendonly yes, appendfsync always)",
		is("appendonly", "yes"), is("appendfsync", "always")),
	{
		"persistence", Note, func(f facts) bool {
			return missing(map[string]string{"yes": "appendfsync", "no": "save"}[f["appendonly"]])(f)
		},
		"appendonly is ${appendonly}; not seen what reaches the disk, and when, because CONFIG GET is not allowed",
		"after a crash or a restart locks may be forgotten" + again, durably,
	},
	{
		"persistence", Warning, is("appendonly", "yes"),
		"writes are appended to a file that is synced later (appendfsync ${appendfsync})",
		"a crash of the host forgets locks of the last moments, with everysec of a second or two" + again, durably,
	},
	{
		"persistence", Warning, is("save", ""), "nothing is written to disk",
		"a restart forgets all locks that are held" + again, durably,
	},
	{
		"persistence", Warning, nil, "there are only snapshots (save ${save})",
		"a crash forgets locks taken since the last one, which may be hours old" + again, durably,
	},
}

// accessRules judge what was refused.
var accessRules = []rule{
	elsewhere("access", noMaster),
	{
		"access", Error, has("denied"), `user "${user}" was refused: ${denied} (${why})`,
		"locks cannot be taken, or are not handed over, or not listed",
		"if it is a permission that is missing, run ACL SETUSER ${user} ${acl}",
	},
	elsewhere("access", has("trouble")),
	good("access", `user "${user}" may do all that locks need`),
	elsewhere("writes", missing("trouble")),
	{
		"writes", Error, nil, "the server refuses writes: ${trouble}", "no lock can be taken, renewed or given back",
		"see the server's log; if it is full (OOM), raise maxmemory or delete other data; permissions have nothing to do with it",
	},
}

const (
	noLock     = "no lock can be taken here"
	noEviction = "set maxmemory-policy noeviction; use a server of its own for locks if the other data are a cache"
	again      = ", and the next client takes them a second time"
	durably    = "set appendonly yes and appendfsync always, at the price of speed; or guard what must not break by fencing tokens"
)

// noMaster holds if the server takes no writes, as the finding of its role says.
func noMaster(f facts) bool { return f["role"] == "slave" || f["redis_mode"] == "sentinel" }
