package etcdlock_test

import (
	"context"
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfastlock/holdfast"
	"github.com/holdfastlock/holdfast/etcdlock"
	"github.com/holdfastlock/holdfast/internal/test/exampletest"
	"github.com/holdfastlock/holdfast/internal/test/testserver"
)

// The URL of a store may have a password, so it comes from the environment:
// etcd://app:secret@etcd1.example.org,etcd2.example.org,etcd3.example.org/billing
func Example() {
	ctx := context.Background()
	locks, err := holdfast.Open(ctx, os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *holdfast.Lease) error {
		fmt.Println("charging under", lease.Name()) // ctx ends when the lock is no longer trusted
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// A program that has a client of etcd already shares it. Renewals should have a client of their own,
// so that long answers to the rest of the program do not hold them up.
func ExampleNew() {
	ctx := context.Background()
	u, err := url.Parse(os.Getenv("HOLDFAST_STORE"))
	if err != nil {
		log.Fatal(err)
	}
	config := clientv3.Config{Endpoints: strings.Split(u.Host, ",")}
	etcd, err := clientv3.New(config)
	if err != nil {
		log.Fatal(err)
	}
	defer etcd.Close() // after the driver
	reserve, err := clientv3.New(config)
	if err != nil {
		log.Fatal(err)
	}
	defer reserve.Close()
	d, err := etcdlock.New(ctx, etcd, &etcdlock.Options{Reserve: reserve})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := holdfast.New(d, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	lease, err := locks.Mutex("orders/42", nil).Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", lease.Name())
	if err := lease.Release(); err != nil {
		log.Fatal(err)
	}
}

func TestExamples(t *testing.T) {
	url := "etcd://" + testserver.StartEtcd(t, testserver.EtcdOptions{}).Addrs()
	exampletest.Expect(t, url, "charging under orders/42", Example)
	exampletest.Expect(t, url, "held: orders/42", ExampleNew)
}
