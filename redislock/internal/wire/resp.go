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

// What a server says of sizes is believed up to these, in bytes. The replies to this driver's
// requests are far smaller.
const (
	longestLine  = 64 << 10
	largestReply = 64 << 20
)

func parseValue(b []byte, depth int) (value any, size int, err error) {
	if len(b) == 0 {
		return nil, 0, nil
	}
	if bytes.IndexByte([]byte("+-:$*"), b[0]) < 0 {
		return nil, 0, errProtocol // at once: a peer of another kind may never end a line
	}
	end := bytes.IndexByte(b, '\n')
	switch {
	case end < 0 && len(b) <= longestLine:
		return nil, 0, nil
	case end < 2 || b[end-1] != '\r':
		return nil, 0, errProtocol
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
		switch have := int64(len(b) - size); {
		case n == -1:
			return nil, size, nil
		case n < 0 || n > largestReply:
			return nil, 0, errProtocol
		case have < n+2:
			return nil, 0, nil
		case string(b[size+int(n):size+int(n)+2]) != "\r\n":
			return nil, 0, errProtocol
		}
		return string(b[size : size+int(n)]), size + int(n) + 2, nil
	case '*':
		switch {
		case n == -1:
			return nil, size, nil
		case depth == 0 || n < 0 || n > largestReply:
			return nil, 0, errProtocol
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
