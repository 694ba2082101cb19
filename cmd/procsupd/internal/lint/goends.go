package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// findEnds collects the calls that end what was started.
func (c *started) findEnds() {
	c.findCheck()
	ast.Inspect(c.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.UnaryExpr: // <-g.Done()
			if call, ok := n.X.(*ast.CallExpr); ok && n.Op == token.ARROW && !c.onRecv && c.on(call, []string{"Done"}) {
				c.ends = append(c.ends, c.ending(n))
			}
		case *ast.CallExpr:
			if c.on(n, c.enders) {
				c.ends = append(c.ends, c.ending(n))
			}
		}
		return true
	})
}

// on reports whether a call is one of the methods, on the result or the
// receiver, and not about another start.
func (c *started) on(call *ast.CallExpr, methods []string) bool {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || !slices.Contains(methods, sel.Sel.Name) {
		return false
	}
	if !c.onRecv {
		return c.mentions(sel.X)
	}
	if types.ExprString(sel.X) != c.recv {
		return false
	}
	if sel.Sel.Name != "Cancel" && sel.Sel.Name != "Wait" && sel.Sel.Name != "WaitTake" || len(call.Args) < 2 {
		return true
	}
	return c.mentions(call.Args[1]) || !c.otherStart(call.Args[1])
}

func (c *started) mentions(n ast.Node) (does bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		does = does || ok && slices.Contains(c.holds, c.info.Uses[id])
		return true
	})
	return does
}

// otherStart reports whether an expression is about what another start gave.
func (c *started) otherStart(n ast.Expr) (other bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && (sel.Sel.Name == "HandleID" || sel.Sel.Name == "CommandID") {
			other = true
		}
		return true
	})
	return other
}

// ending notes how an ending is reached: a function value that ends it counts
// as deferred, wherever it is called.
func (c *started) ending(n ast.Node) goEnd {
	e := goEnd{node: n}
	for p := n; p != nil && p != c.body; p = c.parents[p] {
		switch p.(type) {
		case *ast.DeferStmt:
			e.node, e.deferred = p, true
		case *ast.FuncLit:
			e.node, e.deferred = p, true
		}
	}
	return e
}

// findCheck finds the if that asks whether the start itself failed.
func (c *started) findCheck() {
	p := c.parents[c.stmt]
	if i, ok := p.(*ast.IfStmt); ok && i.Init == c.stmt {
		c.check = i
		return
	}
	block, ok := p.(*ast.BlockStmt)
	if !ok || c.e == nil {
		return
	}
	for _, s := range block.List {
		if s.Pos() <= c.stmt.Pos() {
			continue
		}
		if i, ok := s.(*ast.IfStmt); ok && i.Init == nil && uses(c.info, i.Cond, c.e) {
			c.check = i
			return
		}
		if a, ok := s.(*ast.AssignStmt); ok && slices.ContainsFunc(a.Lhs, func(l ast.Expr) bool { return uses(c.info, l, c.e) }) {
			return
		}
	}
}

func uses(info *types.Info, n ast.Node, o types.Object) (does bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		does = does || ok && info.ObjectOf(id) == o
		return true
	})
	return does
}

// misses says on which way out an ending is not reached; "" if on none.
func (c *started) misses(e goEnd) string {
	for n := e.node; n != nil && n != c.body; n = c.parents[n] {
		p := c.parents[n]
		if contains(p, c.stmt) {
			break
		}
		switch p := p.(type) {
		case *ast.IfStmt:
			if (n == p.Body || n == p.Else) && !c.mentions(p.Cond) && !(p == c.check && comparison(p.Cond)) {
				return fmt.Sprintf("line %d ends it only under a condition", c.line(e.node))
			}
		case *ast.CaseClause:
			if _, sw := c.parents[c.parents[p]].(*ast.SwitchStmt); sw {
				return fmt.Sprintf("line %d ends it only in one case", c.line(e.node))
			}
		}
	}
	var leave ast.Node
	ast.Inspect(c.body, func(n ast.Node) bool {
		if n == nil || leave != nil || n == c.check && !contains(n, e.node) {
			return false
		}
		if _, lit := n.(*ast.FuncLit); lit && !contains(n, c.stmt) {
			return false
		}
		if n.Pos() > c.stmt.End() && n.End() <= e.node.Pos() && c.leaves(n) {
			leave = n
		}
		return true
	})
	if leave == nil {
		return ""
	}
	return fmt.Sprintf("line %d leaves before line %d ends it; defer that", c.line(leave), c.line(e.node))
}

// comparison reports whether a condition asks for one thing only: err != nil.
func comparison(cond ast.Expr) bool {
	b, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	return ok && (b.Op == token.EQL || b.Op == token.NEQ)
}

func contains(outer, inner ast.Node) bool {
	return outer.Pos() <= inner.Pos() && inner.End() <= outer.End()
}

// leaves reports whether a node ends the function, in a way that runs what is
// deferred: os.Exit and log.Fatal do not, so that a defer would not help.
func (c *started) leaves(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.CallExpr:
		switch f := n.Fun.(type) {
		case *ast.Ident:
			b, ok := c.info.Uses[f].(*types.Builtin)
			return ok && b.Name() == "panic"
		case *ast.SelectorExpr:
			if id, ok := f.X.(*ast.Ident); ok {
				if pkg, ok := c.info.Uses[id].(*types.PkgName); ok {
					return pkg.Imported().Path() == "runtime" && f.Sel.Name == "Goexit"
				}
			}
			return slices.Contains([]string{"Fatal", "Fatalf", "FailNow", "Skip", "Skipf", "SkipNow"}, f.Sel.Name)
		}
	}
	return false
}
