package redislock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastlock/holdfast/driver"
)

// remedies say what to do about a refusal, by its code.
var remedies = map[string]string{
	"NOAUTH":      "the server wants a password, or a user and a password",
	"WRONGPASS":   "user or password is wrong, or the user is disabled",
	"NOPERM":      "the user lacks a permission: it needs the commands EVAL, EVALSHA, those that the scripts call, ZREM, GET, SET, SCAN, SUBSCRIBE and PUBSUB|NUMSUB, for replicas also WAIT, and the keys and channels that begin with the prefix, ~" + DefaultPrefix + ":* &" + DefaultPrefix + ":* unless another is set; holdfast doctor names what is missing",
	"LOADING":     "the server has been started and reads its data",
	"READONLY":    "the server is a replica: connect to the primary, or open it by redis+sentinel://",
	"MASTERDOWN":  "the server is a replica that has lost its primary: connect to the primary",
	"OOM":         "the server's memory is full: raise maxmemory, or remove data",
	"MISCONF":     "the server cannot write to its disk, and is set up to refuse writes then: see its log",
	"NOREPLICAS":  "the server has fewer replicas than min-replicas-to-write says",
	"BUSY":        "somebody's script runs for too long: SCRIPT KILL ends it",
	"WRONGTYPE":   "another program uses the key: give the locks another prefix",
	"MOVED":       "the server is a node of a cluster: open it by redis+cluster://",
	"CLUSTERDOWN": "the cluster has a hash slot without a master, or has just lost one: see CLUSTER INFO",
	"TRYAGAIN":    "the name's hash slot is being moved to another server",
}

// Explain adds to a server's refusal what to do about it. It returns other errors as they are.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	refused := (*ServerError)(nil)
	if errors.As(err, &refused) && remedies[refused.Code()] != "" {
		return fmt.Errorf("%w (%s)", err, remedies[refused.Code()])
	}
	return err
}

// isRefusal reports whether an error is a reply of the server.
func isRefusal(err error) bool {
	refused := (*ServerError)(nil)
	return errors.As(err, &refused)
}

// before are the codes by which a server refuses the first write of a script, but no later one.
var before = []string{"OOM", "MISCONF", "READONLY", "NOREPLICAS", "MASTERDOWN"}

// outcome marks the error of a request as uncertain if the store may have carried it out (P6): if no
// reply came, or if a script ended with an error, because what it did before that stays done.
func outcome(err error) error {
	refused := (*ServerError)(nil)
	if !errors.As(err, &refused) {
		return driver.Uncertain(err)
	}
	inside := strings.Contains(refused.Text, "script: ") ||
		strings.HasPrefix(refused.Text, "Error running script")
	if inside && !slices.Contains(before, refused.Code()) {
		return driver.Uncertain(Explain(err))
	}
	return Explain(err)
}
