package server

import "strings"

// listsAt is what the paths of lists begin with: a node below it names principals, one on each line.
const listsAt = "acl/"

// isList reports whether a path is that of a list, or above all of them.
func isList(path string) bool { return path+"/" == listsAt || strings.HasPrefix(path, listsAt) }

// putListLocked takes in the contents of a node, if it is a list.
func (m *mirror) putListLocked(path string, contents []byte) {
	name, ok := strings.CutPrefix(path, listsAt)
	if !ok {
		return
	}
	list := map[string]bool{}
	for line := range strings.Lines(string(contents)) {
		if line = strings.TrimSpace(line); line != "" {
			list[line] = true
		}
	}
	m.lists[name] = list
}

func (m *mirror) deleteListLocked(path string) {
	if name, ok := strings.CutPrefix(path, listsAt); ok {
		delete(m.lists, name)
	}
}

// aclLocked returns who may do what with a path: what its node says, or that of the nearest one above.
// The zero value, where there is none, narrows nothing.
func (m *mirror) aclLocked(path string) acl {
	for path != "" {
		if n, ok := m.nodes.Get(&node{path: path}); ok {
			return n.acl
		}
		path = parentOf(path)
	}
	return acl{}
}

// listedLocked reports whether a list lets a principal: an empty name lets everybody, and a list that is
// not there nobody.
func (m *mirror) listedLocked(name, principal string) bool {
	return name == "" || m.lists[name][principal]
}
