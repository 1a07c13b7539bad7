package zklock

// numbers is what a session knows of the numbers of its nodes in one directory. The server numbers the nodes
// of a directory one after the other, whoever makes them. Suppose that a node had the number 7, that nobody
// was before it when the directory was read, and that it was deleted. If the session's next node has the number
// 8, nobody has made one in between: nobody is before it either, and the directory need not be read again.
//
// This is only so in the same directory: one that was removed and made again begins with 0. While a node is
// in it, it cannot be removed; after that a watch tells, and it tells before the answers to later requests.
// All must be learnt by one connection, and so from one server, whose counter never goes back.
type numbers struct {
	connection int   // by which the rest was learnt
	last       int32 // of the session's newest node
	follows    bool  // it was the number after that of the session's node before
	first      bool  // no other node was before it
	free       bool  // and it is deleted
}

// made takes in the number of a new node, and reports whether certainly nobody is before it.
func (n *numbers) made(number int32, connection int) bool {
	follows := n.connection == connection && number == n.last+1
	*n = numbers{connection: connection, last: number, follows: follows, first: follows && n.free}
	return n.first
}

// read takes in that nobody was before a node when the directory was read.
func (n *numbers) read(number int32, connection int) {
	*n = numbers{connection: connection, last: number, follows: n.follows, first: true}
}

// deleted takes in that a node is deleted, and was there until then.
func (n *numbers) deleted(number int32, connection int) {
	n.free = n.first && n.last == number && n.connection == connection
}

// removed takes in that the directory may be another one.
func (n *numbers) removed() { *n = numbers{} }

// predicts reports whether the session's next node is likely to be made without another before it: the last
// two were, and nobody else's between them.
func (n *numbers) predicts() bool { return n.follows && n.free }
