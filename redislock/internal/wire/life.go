package wire

import "strings"

// A life of a server ends when it restarts, and when it becomes the primary. A server has a run_id, which each start
// chooses anew, and a master_replid, which each promotion chooses anew. A connection ends with the server's process, and
// on a replica nothing can be written, so the server is asked for both once, when the connection is made.

// lifeDigits is how many digits of each of the two are the life: lua/life.lua.
const lifeDigits = 16

// lifeOf returns the life of a server by its replies to INFO server and INFO replication. It returns "" if the server
// does not tell.
func lifeOf(server, replication *Reply) string {
	run, history := infoField(server, "run_id"), infoField(replication, "master_replid")
	if run == "" || history == "" {
		return ""
	}
	return run + history
}

func infoField(info *Reply, name string) string {
	text, _ := info.Value.(string)
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	if len(rest) < lifeDigits || strings.Trim(rest[:lifeDigits], "0123456789abcdef") != "" {
		return ""
	}
	return rest[:lifeDigits]
}
