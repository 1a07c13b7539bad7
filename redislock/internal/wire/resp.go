package wire

import (
	"bytes"
	"errors"
	"strconv"
	"strings"

	"github.com/holdfastlock/holdfast/redislock"
)

// appendCommands writes commands as Redis reads them.
func appendCommands(b []byte, commands []redislock.Command) []byte {
	for i := range commands {
		args := commands[i].Args
		b = appendNumber(b, '*', len(args))
		for _, a := range args {
			b = appendNumber(b, '$', len(a))
			b = append(append(b, a...), "\r\n"...)
		}
	}
	return b
}

func appendNumber(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), "\r\n"...)
}

// errProtocol says that something else than Redis has answered.
var errProtocol = errors.New("the server's reply is not of the protocol")

// parse reads one reply, of version 2 of the protocol, and returns its size: 0 if it is not
// complete.
func parse(b []byte) (r redislock.Reply, size int, err error) {
	value, size, err := parseValue(b, deepest)
	if refused, ok := value.(*redislock.ServerError); ok {
		return redislock.Reply{Err: refused}, size, err
	}
	return redislock.Reply{Value: value}, size, err
}

// deepest is how deep lists in lists may be. Those of the scripts are three deep.
const deepest = 8

func parseValue(b []byte, depth int) (value any, size int, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 2 {
		if end >= 0 {
			err = errProtocol
		}
		return nil, 0, err
	}
	line := b[1 : end-1]
	size = end + 1
	switch b[0] {
	case '+':
		return string(line), size, nil
	case '-':
		return &redislock.ServerError{Text: strings.TrimPrefix(string(line), "ERR ")}, size, nil
	}
	n, err := strconv.ParseInt(string(line), 10, 64)
	if err != nil {
		return nil, 0, errProtocol
	}
	switch b[0] {
	case ':':
		return n, size, nil
	case '$':
		if n < 0 {
			return nil, size, nil
		}
		if int64(len(b)-size) < n+2 {
			return nil, 0, nil
		}
		return string(b[size : size+int(n)]), size + int(n) + 2, nil
	case '*':
		if depth == 0 {
			return nil, 0, errProtocol
		}
		if n < 0 {
			return nil, size, nil
		}
		items := []any{}
		for range n {
			item, more, err := parseValue(b[size:], depth-1)
			if more == 0 {
				return nil, 0, err
			}
			items, size = append(items, item), size+more
		}
		return items, size, nil
	}
	return nil, 0, errProtocol
}
