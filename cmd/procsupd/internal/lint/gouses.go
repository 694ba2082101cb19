package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// place finds what surrounds the call; false: the result goes elsewhere at
// once.
func (c *started) place() bool {
	if sel, ok := ast.Unparen(c.call.Fun).(*ast.SelectorExpr); ok {
		c.recv = types.ExprString(sel.X)
	}
	var n ast.Node = c.call
	for {
		p := c.parents[n]
		switch p := p.(type) {
		case *ast.ParenExpr:
		case *ast.ExprStmt:
			c.stmt = p
		case *ast.AssignStmt:
			c.stmt = p
			if !c.assigned(p.Lhs) {
				return false
			}
		case *ast.ValueSpec:
			var lhs []ast.Expr
			for _, id := range p.Names {
				lhs = append(lhs, id)
			}
			if !c.assigned(lhs) {
				return false
			}
			decl, ok := c.parents[c.parents[p]].(*ast.DeclStmt)
			if !ok {
				return false // a package variable: it lives as long as the program
			}
			c.stmt = decl
		default:
			return false
		}
		if c.stmt != nil {
			break
		}
		n = p
	}
	c.body = c.function(c.stmt)
	return c.body != nil
}

// assigned takes the variables of the result and the error.
func (c *started) assigned(lhs []ast.Expr) bool {
	for i, l := range lhs {
		id, ok := l.(*ast.Ident)
		if !ok {
			if i == 0 {
				return false // stored in a field or an element
			}
			continue
		}
		obj := c.info.ObjectOf(id)
		switch {
		case i == 0 && obj != nil:
			c.v = obj
			c.holds = []types.Object{obj}
			if f := c.function(c.call); f != nil && (obj.Pos() < c.scope(f) || obj.Pos() > f.End()) {
				return false // a variable of the function or package around it
			}
		case i == 1:
			c.e = obj
		}
	}
	return true
}

// scope is where a function begins, with its parameters and named results.
func (c *started) scope(body *ast.BlockStmt) token.Pos { return c.parents[body].Pos() }

// function is the body of the innermost function around a node.
func (c *started) function(n ast.Node) *ast.BlockStmt {
	for ; n != nil; n = c.parents[n] {
		switch f := n.(type) {
		case *ast.FuncDecl:
			return f.Body
		case *ast.FuncLit:
			return f.Body
		}
	}
	return nil
}

// escapes follows the result through the function: true when something else
// gets it and may end it.
func (c *started) escapes() bool {
	for grown := true; grown; {
		grown = false
		gone := false
		ast.Inspect(c.body, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || gone || !slices.Contains(c.holds, c.info.Uses[id]) {
				return true
			}
			more, out := c.follow(id)
			gone = out
			for _, o := range more {
				if o != nil && o != c.e && !slices.Contains(c.holds, o) {
					c.holds, grown = append(c.holds, o), true
				}
			}
			return true
		})
		if gone {
			return true
		}
	}
	return false
}

// follow climbs from one use of a variable to where its value goes: into more
// variables, or out of the function's sight.
func (c *started) follow(id *ast.Ident) (more []types.Object, out bool) {
	var n ast.Node = id
	for {
		p := c.parents[n]
		switch p := p.(type) {
		case *ast.ParenExpr, *ast.StarExpr, *ast.IndexExpr, *ast.SliceExpr, *ast.KeyValueExpr, *ast.CompositeLit, *ast.TypeAssertExpr:
		case *ast.UnaryExpr:
			if p.Op == token.ARROW {
				return nil, false
			}
		case *ast.SelectorExpr:
			if call, ok := c.parents[p].(*ast.CallExpr); ok && call.Fun == p {
				return nil, false // a method of it
			}
			if fn, ok := c.info.Uses[p.Sel].(*types.Func); ok && slices.Contains(c.enders, fn.Name()) {
				return nil, true // t.Cleanup(g.Close)
			}
		case *ast.CallExpr:
			if n == p.Fun {
				return nil, false
			}
			through, keeps := c.passes(p)
			if !keeps {
				return nil, false
			}
			if !through {
				return nil, true
			}
		case *ast.ReturnStmt, *ast.SendStmt:
			return nil, true
		case *ast.AssignStmt:
			return c.into(p.Lhs, n, p)
		case *ast.RangeStmt:
			if n != p.X {
				return nil, false
			}
			return c.into([]ast.Expr{p.Key, p.Value}, n, nil)
		case *ast.ValueSpec:
			for _, name := range p.Names {
				more = append(more, c.info.Defs[name])
			}
			return more, false
		default:
			return nil, false
		}
		n = p
	}
}

// into is an assignment: of the variable itself, to local variables, or out.
func (c *started) into(lhs []ast.Expr, from ast.Node, a *ast.AssignStmt) (more []types.Object, out bool) {
	for i, l := range lhs {
		if l == nil || l == from {
			continue
		}
		if a != nil && len(a.Lhs) == len(a.Rhs) && a.Rhs[i] != from {
			continue
		}
		id, ok := l.(*ast.Ident)
		if !ok {
			return nil, !slices.Contains(lhs, ast.Expr(nil)) && !isOn(lhs, from)
		}
		obj := c.info.ObjectOf(id)
		if obj != nil && obj.Parent() != nil && obj.Pkg() != nil && obj.Parent() == obj.Pkg().Scope() {
			return nil, true
		}
		more = append(more, obj)
	}
	return more, false
}

// isOn reports whether a node is the left side of an assignment.
func isOn(lhs []ast.Expr, n ast.Node) bool {
	return slices.ContainsFunc(lhs, func(l ast.Expr) bool { return l == n })
}

// passes tells of a call with the value among its arguments whether its result
// leads to the value too, and whether it keeps the value at all.
func (c *started) passes(call *ast.CallExpr) (through, keeps bool) {
	if tv, ok := c.info.Types[call.Fun]; ok && tv.IsType() {
		return true, true // string(id)
	}
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		if _, ok := c.info.Uses[f].(*types.Builtin); ok {
			return f.Name == "append", f.Name == "append"
		}
	case *ast.SelectorExpr:
		if c.recv != "" && types.ExprString(f.X) == c.recv {
			return false, false // show, logs, cancel: findEnds looks for those that end
		}
		if id, ok := f.X.(*ast.Ident); ok {
			if pkg, ok := c.info.Uses[id].(*types.PkgName); ok {
				switch pkg.Imported().Path() {
				case "fmt", "strings", "strconv", "errors":
					prints := len(f.Sel.Name) > 4 && (f.Sel.Name[:5] == "Print" || f.Sel.Name[:5] == "Fprin")
					return true, !prints
				case "log", "log/slog":
					return false, false
				}
			}
		}
		switch f.Sel.Name {
		case "Log", "Logf", "Error", "Errorf", "Fatal", "Fatalf", "Skip", "Skipf", "Info", "Debug", "Warn", "Printf", "Println":
			return false, false
		}
	}
	return false, true
}
