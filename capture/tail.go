package capture

// tailSize is what is kept in memory while the spool takes nothing. It bounds
// how far a matcher may be behind; the pump waits for one that is.
const tailSize = 256 << 10

// A tail is the newest bytes of a stream whose spool cannot take them. It is
// guarded by the stream's mu.
type tail struct {
	from int64 // offset of buf[0]
	buf  []byte
}

// add appends p and drops the oldest bytes beyond tailSize.
func (t *tail) add(p []byte) {
	if over := len(t.buf) + len(p) - tailSize; over > 0 {
		over = min(over, len(t.buf))
		t.from += int64(over)
		t.buf = t.buf[:copy(t.buf, t.buf[over:])]
	}
	t.buf = append(t.buf, p...)
}

// readAt copies what is there at off.
func (t *tail) readAt(p []byte, off int64) int {
	i := off - t.from
	if i < 0 || i >= int64(len(t.buf)) {
		return 0
	}
	return copy(p, t.buf[i:])
}
