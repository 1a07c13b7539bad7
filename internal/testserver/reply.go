package testserver

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// readReply reads a reply of a Redis server as text.
func readReply(in *bufio.Reader) string {
	text, err := readValue(in)
	if err != nil {
		return err.Error()
	}
	return text
}

func readValue(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return "", io.ErrUnexpectedEOF
	}
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '$':
		if n < 0 {
			return "", nil
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(in, text)
		return string(text[:n]), err
	case '*':
		var items []string
		for range n {
			item, err := readValue(in)
			if err != nil {
				return "", err
			}
			items = append(items, item)
		}
		return strings.Join(items, " "), nil
	}
	return line[1:], nil
}
