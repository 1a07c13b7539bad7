package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
)

// appendCommands writes commands as Redis reads them, for a server of that life.
func appendCommands(b []byte, commands []Command, life string) []byte {
	for i := range commands {
		args := commands[i].Args
		n := len(args)
		if commands[i].Life {
			n++
		}
		b = appendNumber(b, '*', n)
		for _, a := range args {
			b = appendArg(b, a)
		}
		if commands[i].Life {
			b = appendArg(b, life)
		}
	}
	return b
}

func appendArg(b []byte, a string) []byte {
	return append(append(appendNumber(b, '$', len(a)), a...), "\r\n"...)
}

func appendNumber(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), "\r\n"...)
}

// errProtocol says that something else than Redis has answered.
var errProtocol = errors.New("what listens there does not speak the protocol of Redis")

// parser reads replies, of version 2 of the protocol, from a buffer that grows at its end. It looks at each byte
// of a reply once before the reply is whole, in however small pieces the bytes come, and once more then.
type parser struct {
	size    int   // of the values that are whole, and of the heads of lists
	seen    int   // so many bytes have no end of the line that begins at size
	pending int64 // values that the reply lacks
	values  int64 // of the reply
}

// What a server says of sizes is believed up to these. The largest replies are those of Inspect: a semaphore with
// ten thousand holders has one of 2 MiB.
const (
	longestLine   = 64 << 10 // bytes
	longestString = 1 << 20  // bytes
	largestReply  = 16 << 20 // bytes
	mostValues    = 1 << 20  // in all lists of a reply
)

// deepest is how deep lists in lists may be. Those of the scripts are three deep.
const deepest = 8

// next reads the reply that the buffer begins with, and returns its size: 0 if it is not complete. Then the buffer of
// the next call has the same bytes, and more.
func (p *parser) next(b []byte) (r Reply, size int, err error) {
	if p.size == 0 {
		p.pending, p.values = 1, 1
	}
	for p.pending > 0 {
		kind, _, n, size, err := head(b[p.size:], p.seen)
		switch {
		case err != nil:
			return Reply{}, 0, err
		case size == 0:
			p.seen = len(b) - p.size
			return Reply{}, 0, nil
		case kind == '$' && n >= 0:
			if size += int(n) + 2; size > len(b)-p.size {
				p.seen = 0
				return Reply{}, 0, nil
			}
		case kind == '*' && n > 0:
			p.pending, p.values = p.pending+n, p.values+n
		}
		if p.size, p.seen, p.pending = p.size+size, 0, p.pending-1; p.values > mostValues {
			return Reply{}, 0, errProtocol
		}
	}
	size = p.size
	*p = parser{}
	value, _, err := parseValue(b[:size], deepest)
	if refused, ok := value.(*ServerError); ok {
		return Reply{Err: refused}, size, err
	}
	return Reply{Value: value}, size, err
}

// head reads the first line of a value, of which so many bytes have no end of a line: its kind, its text or its
// number, and its size, 0 if it is not complete.
func head(b []byte, seen int) (kind byte, line []byte, n int64, size int, err error) {
	if len(b) == 0 {
		return 0, nil, 0, 0, nil
	}
	if bytes.IndexByte([]byte("+-:$*"), b[0]) < 0 {
		return 0, nil, 0, 0, errProtocol // at once: a peer of another kind may never end a line
	}
	end := bytes.IndexByte(b[seen:], '\n') + seen
	switch {
	case end < seen && len(b) <= longestLine:
		return 0, nil, 0, 0, nil
	case end < max(seen, 2) || b[end-1] != '\r':
		return 0, nil, 0, 0, errProtocol
	}
	kind, line, size = b[0], b[1:end-1], end+1
	if kind == '+' || kind == '-' {
		return kind, line, 0, size, nil
	}
	if n, err = strconv.ParseInt(string(line), 10, 64); err != nil {
		return 0, nil, 0, 0, errProtocol
	}
	if kind == '$' && (n < -1 || n > longestString) || kind == '*' && (n < -1 || n > mostValues) {
		return 0, nil, 0, 0, errProtocol
	}
	return kind, line, n, size, nil
}

// parseValue reads a whole value.
func parseValue(b []byte, depth int) (value any, size int, err error) {
	kind, line, n, size, err := head(b, 0)
	switch {
	case err != nil:
		return nil, 0, err
	case kind == '+':
		return string(line), size, nil
	case kind == '-':
		return &ServerError{Text: strings.TrimPrefix(string(line), "ERR ")}, size, nil
	case kind == ':':
		return n, size, nil
	case n == -1:
		return nil, size, nil
	case kind == '$' && string(b[size+int(n):size+int(n)+2]) != "\r\n", kind == '*' && depth == 0:
		return nil, 0, errProtocol
	case kind == '$':
		return string(b[size : size+int(n)]), size + int(n) + 2, nil
	}
	items := make([]any, n)
	for i := range items {
		item, more, err := parseValue(b[size:], depth-1)
		if err != nil {
			return nil, 0, err
		}
		items[i], size = item, size+more
	}
	return items, size, nil
}

// reader reads replies from a connection that nobody else reads.
type reader struct {
	net.Conn
	in     []byte // bytes that were read and are no whole reply yet
	parser parser // of in
}

// next returns the next reply. After an error such as a timeout it may be called again.
func (r *reader) next() (Reply, error) {
	for {
		reply, size, err := r.parser.next(r.in)
		if err != nil || size > 0 {
			r.in = r.in[size:]
			return reply, err
		}
		if len(r.in) > largestReply {
			return Reply{}, errProtocol
		}
		if n, err := r.more(r.Conn); n == 0 && err != nil {
			return Reply{}, err
		}
	}
}

// more reads once, and returns how many bytes came.
func (r *reader) more(from io.Reader) (int, error) {
	if cap(r.in)-len(r.in) < ioBuffer {
		r.in = append(make([]byte, 0, 2*len(r.in)+2*ioBuffer), r.in...)
	}
	n, err := from.Read(r.in[len(r.in):cap(r.in)])
	r.in = r.in[:len(r.in)+n]
	return n, err
}
