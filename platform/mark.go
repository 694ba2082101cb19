package platform

import "hash/fnv"

// MarkFor is the mark of a command with a name that no other has: whoever knows
// the name knows the mark, also after all processes that gave it are dead. Of the
// 2^61 numbers far from any limit that somebody sets.
func MarkFor(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return 1<<62 | h.Sum64()>>3<<1
}
