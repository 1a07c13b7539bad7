package rueidisconn

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/holdfastlock/holdfast/redislock"
	"github.com/holdfastlock/holdfast/redislock/internal/cluster"
)

// join connects to a cluster: to each of its servers as to a single one.
func join(option rueidis.ClientOption) (redislock.Conn, error) {
	return cluster.Open(context.Background(), cluster.Options{Seeds: option.InitAddress, Open: func(address string, dialed *cluster.Dialed) (cluster.Server, error) {
		o := through(option, dialed)
		o.InitAddress = []string{address}
		conn, err := single(o)
		if err != nil {
			return nil, failure(err) // and not an *opened that is nil
		}
		return conn, nil
	}})
}
