package wire

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strconv"
	"strings"
)

// Script is an operation that the server runs, known to it by its hash. Life says that its last arguments are about
// the server's life.
type Script struct {
	Text, SHA string
	Life      bool
}

// ScriptOf returns the script of a text.
func ScriptOf(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// Lua returns the text of some files, one behind the other. Their names are without .lua.
func Lua(files embed.FS, names ...string) (text string) {
	for _, name := range names {
		part, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err)
		}
		text += string(part)
	}
	return text
}

// Command is one run of the script.
func (s *Script) Command(keys []string, args ...string) Command {
	all := make([]string, 0, 3+len(keys)+len(args))
	all = append(all, "EVALSHA", s.SHA, strconv.Itoa(len(keys)))
	all = append(all, keys...)
	return Command{Args: append(all, args...), Key: keys[0]}
}

// Again reports whether the server did not know the script, as after its restart, and so has not run it. Then it
// makes the command one that has the script's text.
func (s *Script) Again(r *Reply, c *Command) bool {
	refused, ok := r.Err.(*ServerError)
	if !ok || !strings.HasPrefix(refused.Text, "NOSCRIPT") {
		return false
	}
	c.Args[0], c.Args[1] = "EVAL", s.Text
	return true
}
