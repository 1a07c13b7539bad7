package doctor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast/etcdlock"
)

// etcdChecks are the checks of an etcd cluster.
var etcdChecks = []Check{transportOf("etcds", "on a network that others use, use etcds://"), etcdCluster}

// etcdFlaws are from etcd's change logs up to 3.7.1, July 2026.
var etcdFlaws = &flaws{
	sound: map[string]int{"3.4": 38, "3.5": 23, "3.6": 5},
	risk: "members that were killed may forget what they have acknowledged, and leases may end early or be kept too long: " +
		"a lock may have two holders (etcd issues 11651, 13766, 15247, 20547)",
}

const noMajority = "without a majority no lock is taken, renewed or released"

// etcdRules judge what the members tell.
var etcdRules = []rule{
	{"quorum", Error, has("silent"), "no member answers for the cluster: ${silent}", noMajority, "start the missing members"},
	{
		"quorum", Warning, has("down"), "of ${members} members these cannot be reached from here: ${down}",
		"the cluster bears the loss of ${spare}",
		"start them, or let this host reach the addresses that they publish for clients",
	},
	good("quorum", "all ${members} members answer; the cluster bears the loss of ${spare}"),
	{
		"access", Warning, has("open"), "the URL has a user, but etcd asks nobody for a password",
		"anyone who can reach the members can take, release and delete any lock", "run etcdctl auth enable",
	},
}

// memberWithin is how long a member may take to answer.
const memberWithin = 2 * time.Second

func etcdCluster(ctx context.Context, p Patient) []Finding {
	config, err := etcdlock.Config(p.driver)
	if err != nil {
		return nil // the lock's finding says why
	}
	etcd, err := clientv3.New(config)
	if err != nil {
		return nil // as above
	}
	defer etcd.Close()
	f := facts{}
	learnEtcd(ctx, etcd, f)
	return judge(f, slices.Concat(etcdRules, versionRules)...)
}

// learnEtcd asks all voting members for their state.
func learnEtcd(ctx context.Context, etcd *clientv3.Client, f facts) {
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	list, err := etcd.MemberList(ctx)
	if err != nil {
		f["silent"] = err.Error()
		return
	}
	if auth, err := etcd.AuthStatus(ctx); err == nil && !auth.Enabled && etcd.Username != "" {
		f["open"] = "yes"
	}
	members := 0
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, m := range list.Members {
		if m.IsLearner {
			continue
		}
		members++
		asked.Go(func() {
			var status *clientv3.StatusResponse
			err := errors.New("it has told no address for clients")
			if len(m.ClientURLs) > 0 {
				status, err = etcd.Status(ctx, m.ClientURLs[0])
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				f.add("down", m.Name)
				return
			}
			f["answers"] = "yes"
			f.addVersion(etcdFlaws, "member "+m.Name, status.Version)
		})
	}
	asked.Wait()
	f["members"], f["spare"] = strconv.Itoa(members), strconv.Itoa((members-1)/2)
}
