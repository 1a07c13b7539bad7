package demo

import (
	"bytes"
	"testing"
)

func TestCronTable(t *testing.T) {
	var out bytes.Buffer
	o := CronOptions{}
	if err := o.setDefaults(); err != nil {
		t.Fatal(err)
	}
	d := &demonstration{Options: Options{Width: 80, Out: &out}}
	err := d.cronTable(o, []CronResult{{Strategy: "plain", What: "is short", Ticks: 12, Runs: 30, Once: 1, Twice: 11}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `A job of 5ms, once per tick of 500ms: 3 replicas, each one's clock 33ms later
than the one's before.

strategy  ticks  runs  once  more than once  missed
plain        12    30     1              11       0
  is short

plain: the job ran more than once at 11 of 12 ticks.
`
	if out.String() != want {
		t.Errorf("the table is\n%s\nwant\n%s", out.String(), want)
	}
}
