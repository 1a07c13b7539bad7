package otelhold_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/holdfastlock/holdfast"
	_ "github.com/holdfastlock/holdfast/memlock" // mem://
	"github.com/holdfastlock/holdfast/otelhold"
)

// One line switches metrics and spans on; classes of names are an attribute only if you say so.
func Example() {
	ctx, url := context.Background(), "mem://otelhold-example"
	locks, err := otelhold.Open(ctx, url, &otelhold.Options{
		Class: func(name string) string { // "orders" for "orders/42"
			class, _, _ := strings.Cut(name, "/")
			return class
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	err = locks.Mutex("orders/42", nil).Do(ctx, func(context.Context, *holdfast.Lease) error {
		fmt.Println("measured")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: measured
}
