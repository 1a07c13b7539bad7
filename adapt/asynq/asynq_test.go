//go:build soak

package asynq

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/election"
	_ "github.com/holdfastlock/holdfast/filelock"

	"github.com/holdfastlock/holdfast/internal/test/testserver"
	"github.com/holdfastlock/holdfast/internal/test/ticktest"
)

func TestMain(m *testing.M) { ticktest.Main(m, schedule) }

// redisEnv is the address of the Redis server, for the processes.
const redisEnv = "HOLDFAST_ASYNQ_REDIS"

// TestEachTickIsEnqueuedOnce: asynq reads the host's clock and has no hook for another, so the
// processes start 200 ms apart instead. Each would enqueue all ticks.
func TestEachTickIsEnqueuedOnce(t *testing.T) {
	t.Setenv(redisEnv, testserver.StartRedis(t, testserver.RedisOptions{}).Addr)
	ticktest.Run(t, ticktest.Plan{
		Store: "file://" + t.TempDir(), Jobs: 10, Ticks: testserver.Long(4, 10), Every: time.Second,
	})
}

// schedule is one of the processes. Its tasks tick each second, the shortest of asynq.
func schedule(p ticktest.Plan) error {
	locks, err := holdfast.Open(context.Background(), p.Store)
	if err != nil {
		return err
	}
	defer locks.Close()
	start := p.Start.Add(p.Ahead - 900*time.Millisecond) // between the ticks before the plan
	time.Sleep(time.Until(start))
	ctx, cancel := context.WithDeadline(context.Background(), p.End())
	defer cancel()
	o := asynq.RedisClientOpt{Addr: os.Getenv(redisEnv)}
	err = Run(ctx, election.New(locks, "scheduler", nil), strconv.Itoa(os.Getpid()), 0,
		func() (*asynq.Scheduler, error) {
			s := asynq.NewScheduler(o, &asynq.SchedulerOpts{
				LogLevel: asynq.ErrorLevel,
				PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
					if err == nil {
						job, _ := strconv.Atoi(info.Type)
						p.RanAt(job, time.Now())
					}
				},
			})
			for job := range p.Jobs {
				if _, err := s.Register("@every 1s", asynq.NewTask(strconv.Itoa(job), nil)); err != nil {
					return nil, err
				}
			}
			return s, nil
		})
	return err
}

// TestSuccession: the leader resigns after the grace, and the next one leads.
func TestSuccession(t *testing.T) {
	server := testserver.StartRedis(t, testserver.RedisOptions{})
	locks, err := holdfast.Open(t.Context(), "file://"+t.TempDir())
	testserver.Must(t, err)
	defer locks.Close()
	const grace = 300 * time.Millisecond
	office := election.New(locks, "scheduler", nil)
	leads := make(chan int, 2)
	var ended [2]chan error
	var cancel [2]context.CancelFunc
	for i := range ended {
		ctx, stop := context.WithCancel(t.Context())
		cancel[i], ended[i] = stop, make(chan error, 1)
		go func() {
			ended[i] <- Run(ctx, office, fmt.Sprint(i), grace, func() (*asynq.Scheduler, error) {
				leads <- i
				return asynq.NewScheduler(asynq.RedisClientOpt{Addr: server.Addr},
					&asynq.SchedulerOpts{LogLevel: asynq.ErrorLevel}), nil
			})
		}()
	}
	first := <-leads
	stopped := time.Now()
	cancel[first]()
	if second := <-leads; second != 1-first {
		t.Errorf("%d leads after %d", second, first)
	}
	if after := time.Since(stopped); after < grace {
		t.Errorf("the successor leads after %v, want %v at least", after, grace)
	}
	cancel[1-first]()
	for i := range ended {
		if err := <-ended[i]; err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := Run(ctx, office, "", 0, func() (*asynq.Scheduler, error) { panic("leads") }); err != nil {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err := Run(t.Context(), office, "", -1, func() (*asynq.Scheduler, error) { panic("leads") }); err == nil {
		t.Error("a negative grace is accepted")
	}
	if err := Run(t.Context(), office, "", 0, nil); err == nil {
		t.Error("no function is accepted")
	}
}
