package etcdlock

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestIndex does random things to an index and to a map, and compares; in the end
// everything is taken out, and little is left.
func TestIndex(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 0))
		x, model := newIndex(), map[*record]bool{}
		var made []*record
		for i := range 1000 { // few of most names, many of one
			name := "many"
			if random.IntN(4) > 0 {
				name = fmt.Sprint(random.IntN(400))
			}
			made = append(made, &record{name: name, owner: fmt.Sprint("o", i)})
		}
		for n := range 8000 {
			r := made[random.IntN(len(made))]
			if n >= 4000 && n%4 > 0 || random.IntN(2) == 0 {
				x.remove(r)
				delete(model, r)
			} else {
				x.add(r)
				model[r] = true
			}
			if n%100 == 0 {
				sameAs(t, &x, made, model)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, n)
			}
		}
		for _, r := range made {
			x.remove(r)
		}
		sameAs(t, &x, made, nil)
		for i := range 2000 {
			x.add(&record{name: fmt.Sprint(i), owner: "o"})
		}
		for i := range 2000 {
			x.remove(x.find(fmt.Sprint(i), "o"))
		}
		if x.most > 0 || len(x.byName) > 0 {
			t.Errorf("P9: %d records are left, in a map that has had %d", len(x.byName), x.most)
		}
	}
}

// sameAs looks at everything that an index tells.
func sameAs(t *testing.T, x *index, made []*record, model map[*record]bool) {
	t.Helper()
	all, names := map[*record]int{}, map[string]int{}
	for r := range x.all() {
		all[r]++
	}
	for r := range model {
		names[r.name]++
	}
	for range x.named("nobody's") {
		t.Error("a name that nobody has used has a record")
	}
	if len(all) != len(model) {
		t.Errorf("%d records in all, want %d", len(all), len(model))
	}
	for _, r := range made {
		if found := x.find(r.name, r.owner); (found == r) != model[r] || found != nil && found != r {
			t.Errorf("%s of %s: found %v, want it: %v", r.owner, r.name, found, model[r])
		}
		if all[r] > 1 {
			t.Errorf("%s of %s is there %d times", r.owner, r.name, all[r])
		}
	}
	for name, want := range names {
		n := 0
		for r := range x.named(name) {
			if n++; r.name != name {
				t.Errorf("%s is among the records of %s", r.name, name)
			}
		}
		if n != want {
			t.Errorf("%d records of %s, want %d", n, name, want)
		}
	}
}
