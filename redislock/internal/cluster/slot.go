package cluster

import "strings"

// slots is how many hash slots a cluster has.
const slots = 16384

// slotOf returns the hash slot of a key: of its hash tag, if it has one that is not empty, else of all
// of it. The tag is what is between the first { and the first } after it.
func slotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	return int(crc16(key)) % slots
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
