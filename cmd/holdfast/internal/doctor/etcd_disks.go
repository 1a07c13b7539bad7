package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// disks compares how long the members' disks take with the shortest TTL. Taking, releasing and
// handing over a lock waits for the disks of a majority.
func (e *etcdPatient) disks(ctx context.Context) []Finding {
	const check = "disks"
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: e.tls.Clone()}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var slowest time.Duration
	var name string
	for _, m := range e.members {
		if m.err != nil {
			continue
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(m.url, "/")+"/metrics", nil)
		if err != nil {
			continue
		}
		resp, err := client.Do(req)
		if err != nil {
			continue // metrics may be served elsewhere
		}
		took, ok := slowSync(resp.Body)
		resp.Body.Close()
		if ok && took >= slowest {
			slowest, name = took, m.name
		}
	}
	if name == "" || e.shortest == 0 {
		return nil // no member publishes it; there is still the finding of latency
	}
	return judgeDisks(check, name, slowest, e.shortest)
}

// judgeDisks judges what a disk's slow writes mean for the shortest TTL. Etcd's documentation asks
// that 99 of 100 take less than 10 ms.
func judgeDisks(check, member string, slow, shortest time.Duration) []Finding {
	found := fmt.Sprintf("of the writes to the disk of member %s, which is the slowest, 99 of "+
		"100 took at most %v; the shortest TTL is %v", member, slow, shortest)
	if slow > shortest/100 {
		return []Finding{{
			Check: check, Severity: Warning, Found: found,
			Risk:   "acquires and hand-offs wait for them, elections begin for nothing, and short leases are lost",
			Remedy: "give etcd a fast disk of its own, or use longer TTLs",
		}}
	}
	return good(check, "%s", found)
}

// slowSync reads from a member's metrics the time within which 99 of 100 fsyncs of its log have
// ended. Ok is false if there have been none.
func slowSync(metrics io.Reader) (slow time.Duration, ok bool) {
	const bucket = `etcd_disk_wal_fsync_duration_seconds_bucket{le="`
	type step struct{ within, count float64 }
	var steps []step
	for lines := bufio.NewScanner(metrics); lines.Scan(); {
		rest, is := strings.CutPrefix(lines.Text(), bucket)
		if !is {
			continue
		}
		bound, count, _ := strings.Cut(rest, `"} `)
		within, err1 := strconv.ParseFloat(bound, 64) // +Inf is one too
		n, err2 := strconv.ParseFloat(count, 64)
		if err1 == nil && err2 == nil {
			steps = append(steps, step{within, n})
		}
	}
	if len(steps) < 2 || steps[len(steps)-1].count == 0 {
		return 0, false
	}
	last := steps[len(steps)-2] // before +Inf
	for _, s := range steps[:len(steps)-1] {
		if s.count >= 0.99*steps[len(steps)-1].count {
			last = s
			break
		}
	}
	return time.Duration(last.within * float64(time.Second)), true
}
