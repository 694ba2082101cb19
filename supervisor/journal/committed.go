package journal

// Committed is the Commit of something that was committed long ago.
func Committed() *Commit {
	c := &Commit{done: make(chan struct{})}
	close(c.done)
	return c
}
