package lint

import (
	"bytes"
	"errors"

	"mvdan.cc/sh/v3/syntax"
)

// What a script may hold at most: the parser is recursive, and neither a stack
// that is too deep nor a day of work can be recovered from. Real scripts stay
// far below.
const (
	maxParens = 20_000 // each may open a level; some 4 KiB of stack
	maxNodes  = 50_000 // statements, with a function's counted at each call
	maxJobs   = 200
	maxLook   = 5_000 // nodes of one statement that are looked at for one question
)

func tooDeep(src []byte) error {
	if bytes.Count(src, []byte("(")) > maxParens {
		return errors.New("it has more parentheses than lint follows")
	}
	return nil
}

// walk is syntax.Walk that ends.
func walk(n syntax.Node, visit func(syntax.Node) bool) {
	left := maxLook
	syntax.Walk(n, func(n syntax.Node) bool {
		if n == nil {
			return visit(nil)
		}
		left--
		return left > 0 && visit(n)
	})
}
