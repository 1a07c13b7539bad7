package cluster

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/redislock/internal/slot"
	"github.com/holdfastlock/holdfast/redislock/internal/wire"
)

// table says which server has each slot. It does not change.
type table struct {
	owners []string // their addresses, sorted
	of     [slot.Count]string
}

// errNoTable says that a server has not told the slots.
var errNoTable = errors.New("the server does not say which nodes have the slots")

// parseTable reads the reply to CLUSTER SLOTS that the server at the address has sent: ranges of slots,
// each with its nodes, the master first.
func parseTable(asked string, r wire.Reply) (*table, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	t := &table{}
	ranges, _ := r.Value.([]any)
	for _, item := range ranges {
		fields, _ := item.([]any)
		if len(fields) < 3 {
			return nil, errNoTable
		}
		from, ok1 := fields[0].(int64)
		to, ok2 := fields[1].(int64)
		master, _ := fields[2].([]any)
		address := addressOf(asked, master)
		if !ok1 || !ok2 || from < 0 || to < from || to >= slot.Count || address == "" {
			return nil, errNoTable
		}
		for i := from; i <= to; i++ {
			t.of[i] = address
		}
		t.owners = append(t.owners, address)
	}
	if len(t.owners) == 0 {
		return nil, errNoTable
	}
	slices.Sort(t.owners)
	t.owners = slices.Compact(t.owners)
	return t, nil
}

// addressOf reads a node. One without a host is at that of the server that was asked.
func addressOf(asked string, node []any) string {
	if len(node) < 2 {
		return ""
	}
	host, _ := node[0].(string)
	port, ok := node[1].(int64)
	if !ok || port < 1 || port > 65535 || host == "?" {
		return ""
	}
	if host == "" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10))
}

// redirection is where a refusal sends a command.
type redirection struct {
	address string
	ask     bool // for this command only
}

// redirected reads a refusal such as "MOVED 3999 127.0.0.1:6381", which the server at the address has
// sent.
func redirected(asked string, r *wire.Reply) (to redirection, ok bool) {
	refused, isRefusal := r.Err.(*wire.ServerError)
	if !isRefusal {
		return to, false
	}
	f := strings.Fields(refused.Text)
	if len(f) != 3 || f[0] != "MOVED" && f[0] != "ASK" {
		return to, false
	}
	host, port, err := net.SplitHostPort(f[2])
	if err != nil {
		return to, false
	}
	if host == "" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return redirection{net.JoinHostPort(host, port), f[0] == "ASK"}, true
}
