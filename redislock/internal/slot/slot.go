// Package slot says which hash slot of a Redis Cluster a key has.
package slot

import (
	"strconv"
	"strings"
)

// Count is how many hash slots a cluster has.
const Count = 16384

// Of returns the hash slot of a key.
func Of(key string) int { return OfText(hashed(key)) }

// OfText returns the slot of a key of which all is hashed, whatever braces it has.
func OfText(key string) int { return int(crc16(key)) % Count }

// hashed returns what of a key is hashed: its hash tag, if it has one that is not empty, else all of it. The
// tag is what is between the first { and the first } after it.
func hashed(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// TagLike returns a hash tag, without braces: keys that begin with it, in braces, have the slot of the key.
// It is the key itself, if that has no braces.
func TagLike(key string) string {
	if tag := hashed(key); tag != "" && !strings.Contains(tag, "}") {
		return tag
	}
	slot := Of(key)
	for n := 1; ; n++ { // to 170,000 at most, and 16,000 most often
		if tag := strconv.Itoa(n); OfText(tag) == slot {
			return tag
		}
	}
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, from 0, the highest bit first.
func crc16(text string) (sum uint16) {
	for i := range len(text) {
		sum ^= uint16(text[i]) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return sum
}
