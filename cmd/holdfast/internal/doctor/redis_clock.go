package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfastlock/holdfast/driver"
	"github.com/holdfastlock/holdfast/redislock"
)

// redisClockAndLatency compares the clocks, and measures round trips between the two readings.
func redisClockAndLatency(ctx context.Context, r *redisServer) []Finding {
	read := func() (time.Time, error) { return r.clock(ctx) }
	first, err := readClock(read)
	if err != nil {
		return clockUnseen(err)
	}
	findings := redisLatency(ctx, r)
	select {
	case <-time.After(clockInterval - driver.HostClock.Now().Sub(first.end)):
	case <-ctx.Done():
	}
	second, err := readClock(read)
	if err != nil {
		return append(findings, clockUnseen(err)...)
	}
	return append(findings, judgeServerClock(first, second))
}

func clockUnseen(err error) []Finding {
	if _, ok := errors.AsType[*redislock.ServerError](err); ok {
		return nil // the command or the script is refused: other findings say so
	}
	return connectionTrouble("server clock", err)
}

// clock reads the server's clock, as scripts see it.
func (r *redisServer) clock(ctx context.Context) (time.Time, error) {
	reply := r.ask(ctx, "EVAL", "return redis.call('TIME')", "1", r.scratch)
	if reply.Err != nil {
		return time.Time{}, reply.Err
	}
	list, _ := reply.Value.([]any)
	if len(list) != 2 {
		return time.Time{}, fmt.Errorf("the clock is %.50q", fmt.Sprint(reply.Value))
	}
	seconds, err1 := strconv.ParseInt(fmt.Sprint(list[0]), 10, 64)
	micros, err2 := strconv.ParseInt(fmt.Sprint(list[1]), 10, 64)
	return time.Unix(seconds, micros*1000), errors.Join(err1, err2)
}

// redisLatency measures round trips.
func redisLatency(ctx context.Context, r *redisServer) []Finding {
	f, err := latency("round trips", func() error {
		err := r.ask(ctx, "GET", r.scratch).Err
		if _, ok := errors.AsType[*redislock.ServerError](err); ok {
			return nil // an answer all the same
		}
		return err
	})
	if err != nil {
		return connectionTrouble("latency", err)
	}
	return []Finding{f}
}
