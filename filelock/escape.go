//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package filelock

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// suffix ends the names of record files.
const suffix = ".lock"

// longest is the length of the longest file name that common file systems take.
const longest = 255

// fileName returns the file of a name. Different names have different files,
// also where the file system ignores case or normalises Unicode: everything but
// lower-case letters, digits, "_", "-" and "." is written as "%" and two hex
// digits. Where that grows too long, the file is "~" and the SHA-256 of the
// name; the record itself has the name.
func fileName(name string) string {
	n := len(name) + len(suffix)
	for i := 0; i < len(name); i++ {
		if !plain(name[i]) {
			n += 2
		}
	}
	if n > longest {
		sum := sha256.Sum256([]byte(name))
		return "~" + hex.EncodeToString(sum[:]) + suffix
	}
	b := make([]byte, 0, n)
	for i := 0; i < len(name); i++ {
		if c := name[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(append(b, suffix...))
}

const hexDigits = "0123456789abcdef"

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}

// errHashed says that a file name does not tell the name.
var errHashed = errors.New("the name is hashed")

// nameOf is the inverse of fileName. It accepts nothing that fileName does not
// return, and returns errHashed for what only the record can tell.
func nameOf(file string) (string, error) {
	escaped, ok := strings.CutSuffix(file, suffix)
	if !ok {
		return "", fmt.Errorf("%q is no record file", file)
	}
	if strings.HasPrefix(escaped, "~") {
		if sum, err := hex.DecodeString(escaped[1:]); err != nil || len(sum) != sha256.Size || strings.ToLower(escaped) != escaped {
			return "", fmt.Errorf("%q is no record file", file)
		}
		return "", errHashed
	}
	name := make([]byte, 0, len(escaped))
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '%' {
			var b [1]byte
			if i+3 > len(escaped) {
				return "", fmt.Errorf("%q is no record file", file)
			}
			if _, err := hex.Decode(b[:], []byte(escaped[i+1:i+3])); err != nil {
				return "", fmt.Errorf("%q is no record file", file)
			}
			c, i = b[0], i+2
		}
		name = append(name, c)
	}
	if fileName(string(name)) != file {
		return "", fmt.Errorf("%q is no record file", file)
	}
	return string(name), nil
}
