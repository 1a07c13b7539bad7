package redisson

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
)

// NoThread is the number of the owners of Holdfast. No thread of Java has it, so scripts know ours by it.
const NoThread = "0"

// Owner returns what is written for an owner of Holdfast: a UUID, a colon and a number, as Redisson writes
// for the threads of a client. An owner of 32 lower hexadecimal digits is the UUID itself. It depends on
// nothing else, so a request can be withdrawn by whoever knows its owner. What is written so already stays as
// it is: the owners of Java that Shown returns.
func Owner(owner string) string {
	if IsOwner(owner) {
		return owner
	}
	return uuid(idOf(owner)) + ":" + NoThread
}

// idOf returns the 16 bytes that stand for an owner.
func idOf(owner string) [16]byte {
	if id, ok := digits(owner); ok {
		return id
	}
	sum := sha256.Sum256([]byte(owner))
	return [16]byte(sum[:16])
}

// Shown returns an owner of Holdfast of whom a text is written, if it can be one, else the text.
func Shown(text string) string {
	if id, ok := strings.CutSuffix(text, ":"+NoThread); ok {
		if owner := strings.ReplaceAll(id, "-", ""); Owner(owner) == text {
			return owner
		}
	}
	return text
}

// IsOwner reports whether a text is one of Redisson's, or of Holdfast's: a UUID, a colon and a number.
func IsOwner(text string) bool {
	id, number, _ := strings.Cut(text, ":")
	if _, err := strconv.ParseInt(number, 10, 64); err != nil || len(id) != 36 {
		return false
	}
	_, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	return err == nil
}

// PermitIDs returns the ids of the permits that an owner has, of 16 bytes each, as one text. The first one
// stands for the owner, and is shown as it is, as Redisson shows ids to its users.
func PermitIDs(owner string, permits int) string {
	first := idOf(owner)
	ids := make([]byte, 0, 16*permits)
	ids = append(ids, first[:]...)
	for i := 1; i < permits; i++ {
		ids = append(ids, next(first, i)...)
	}
	return string(ids)
}

// PermitOwner returns how the owner of permits is shown: the id of the first one, in hexadecimal. Of what it
// returns it returns the same.
func PermitOwner(owner string) string { return hex.EncodeToString([]byte(PermitIDs(owner, 1))) }

// next returns the id of an owner's permit, which is not its first.
func next(first [16]byte, i int) []byte {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(first[:], uint32(i)))
	return sum[:16]
}

// Permits groups ids of permits by their owners, as far as that can be told: a permit of which no other
// follows is an owner's only one, as each of Redisson's is. It returns the first ids.
func Permits(ids []string) map[string][]string {
	there, followers := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		there[id] = true
	}
	owners := map[string][]string{}
	for _, id := range ids {
		owners[id] = []string{id}
		for i := 1; len(id) == 16; i++ {
			other := string(next([16]byte([]byte(id)), i))
			if !there[other] {
				break
			}
			owners[id] = append(owners[id], other)
			followers[other] = true
		}
	}
	for id := range followers {
		delete(owners, id)
	}
	return owners
}

// digits reads an owner of 32 lower hexadecimal digits.
func digits(owner string) (id [16]byte, ok bool) {
	if len(owner) != 32 || strings.ToLower(owner) != owner {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(owner))
	return id, err == nil
}

func uuid(id [16]byte) string {
	text := hex.EncodeToString(id[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
