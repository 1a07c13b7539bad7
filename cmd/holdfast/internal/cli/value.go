package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// count is the value of a flag that is a number of something: at least 1.
type count int

func (c *count) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err == nil && n < 1 {
		err = errors.New("at least 1 is needed")
	}
	*c = count(n)
	return err
}

func (c *count) String() string { return strconv.Itoa(int(*c)) }

// Type is a name for the value in help texts.
func (c *count) Type() string { return "int" }

// duration is the value of a flag that is one.
type duration time.Duration

func (d *duration) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("a duration looks like 500ms, 30s, 5m or 2h")
	}
	*d = duration(v)
	return nil
}

// String returns "0" for 0, not "0s": help texts then do not show it as the default.
func (d *duration) String() string {
	if *d == 0 {
		return "0"
	}
	return time.Duration(*d).String()
}

// Type is the name of the value in help texts.
func (*duration) Type() string { return "duration" }
