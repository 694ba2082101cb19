package lint

import (
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// The kinds of what happens in a script.
type kind int

const (
	evStart   kind = iota // a job is put into the background, or a handle started
	evRun                 // a command in front
	evKill                // something is told to end
	evWait                // wait, fg, procsup wait
	evSleep               // sleep
	evLoop                // a while or until loop begins
	evReady               // a wait for readiness: wait-on, procsup wait-output, …
	evAssign              // a variable gets a value
	evExit                // exit or return
	evErrexit             // set -e
	evSession             // a session bound to this script
)

// An event is one thing that happens, in the order in which a run without
// surprises goes. A function's body happens where it is called.
type event struct {
	kind   kind
	node   syntax.Node
	cmd    *command
	job    *job    // evStart
	kill   *kill   // evKill and evWait
	guards []guard // the conditions it is under
	loops  []syntax.Node
	within *job   // the background job it is part of
	root   string // the uncalled function it is in; "" for the script itself
	fn     string // the innermost function
	seq    int
}

// A guard is one branch of a condition. names are the variables it asks for.
type guard struct {
	node   syntax.Node
	branch int
	names  []string
}

// place is where the walk is.
type place struct {
	guards []guard
	loops  []syntax.Node
	job    *job
	root   string
	calls  []string
}

func (p place) under(g guard) place {
	p.guards = append(slices.Clip(p.guards), g)
	return p
}

func (p place) in(loop syntax.Node) place {
	p.loops = append(slices.Clip(p.loops), loop)
	return p
}

// A script is what the shell rules look at.
type script struct {
	name    string
	src     []byte
	file    *syntax.File
	funcs   map[string]*syntax.Stmt
	called  map[string]bool
	events  []*event
	jobs    []*job
	traps   []*trap
	errexit bool
	sources bool             // reads other scripts, which may do what is not seen here
	guess   bool             // calls functions by computed names
	monitor bool             // set -m: each job has a group of its own
	posix   bool             // sh may be a shell whose EXIT trap does not run when a signal ends it
	found   map[string]*kill // variables that hold what pgrep and the like found
	service bool             // start and stop are two calls of it
	top     *syntax.Stmt     // the statement of the script itself that is walked
	cut     *syntax.Stmt     // the first that was not looked at, in a script too long
	budget  int              // nodes that may still be walked: calls repeat bodies
}

func newScript(name string, src []byte, file *syntax.File, d dialect) *script {
	s := &script{name: name, src: src, file: file, funcs: map[string]*syntax.Stmt{}, called: map[string]bool{}, found: map[string]*kill{},
		errexit: d.errexit, posix: d.variant == syntax.LangPOSIX, budget: maxNodes}
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.FuncDecl:
			if n.Name != nil && n.Body != nil {
				s.funcs[n.Name.Value] = n.Body
			}
		case *syntax.CallExpr:
			s.sources = s.sources || reads(n)
		case *syntax.CaseClause:
			s.service = s.service || startsAndStops(n)
		}
		return true
	})
	for _, st := range file.Stmts {
		s.top = st
		s.stmt(st, place{})
	}
	for _, name := range s.uncalled() {
		if tearDown.MatchString(name) { // bats and shunit2 call it at every end
			s.traps = append(s.traps, &trap{node: s.funcs[name], signals: []string{"EXIT"}, events: s.apart(s.funcs[name], name)})
			continue
		}
		s.stmt(s.funcs[name], place{root: name, calls: []string{name}})
	}
	return s
}

func (s *script) uncalled() (names []string) {
	for name := range s.funcs {
		if !s.called[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// apart walks what does not happen in the script's own order, and returns it.
func (s *script) apart(st *syntax.Stmt, root string) []*event {
	kept := s.events
	s.events = nil
	s.stmt(st, place{root: root, calls: []string{root}})
	got := s.events
	s.events = kept
	return got
}

func (s *script) emit(p place, e event) *event {
	e.guards, e.loops, e.within, e.root, e.seq = p.guards, p.loops, p.job, p.root, len(s.events)
	if len(p.calls) > 0 {
		e.fn = p.calls[len(p.calls)-1]
	}
	s.events = append(s.events, &e)
	return &e
}

func (s *script) stmts(list []*syntax.Stmt, p place) {
	for _, st := range list {
		s.stmt(st, p)
	}
}

func (s *script) stmt(st *syntax.Stmt, p place) {
	if st == nil || s.budget <= 0 {
		if s.cut == nil {
			s.cut = s.top
		}
		return
	}
	s.budget--
	for _, r := range st.Redirs {
		s.words(r.Word, p)
		s.words(r.Hdoc, p)
	}
	switch {
	case st.Background || st.Disown:
		s.background(st, p)
	case st.Coprocess: // it ends when its input does, at the latest with the script
	default:
		s.cmd(st, st.Cmd, p)
	}
}

func (s *script) background(st *syntax.Stmt, p place) {
	if len(s.jobs) >= maxJobs {
		s.budget = 0
		return
	}
	j := &job{stmt: st, within: p.job}
	s.describe(j)
	j.start = s.emit(p, event{kind: evStart, node: st, job: j})
	s.jobs = append(s.jobs, j)
	in := p
	in.job, in.guards, in.loops = j, nil, nil
	s.cmd(st, st.Cmd, in)
}

func (s *script) cmd(st *syntax.Stmt, c syntax.Command, p place) {
	switch c := c.(type) {
	case *syntax.CallExpr:
		s.call(st, c, p)
	case *syntax.Subshell:
		s.stmts(c.Stmts, p)
	case *syntax.Block:
		s.stmts(c.Stmts, p)
	case *syntax.IfClause:
		s.ifClause(c, p)
	case *syntax.WhileClause:
		in := p.in(c)
		s.emit(p, event{kind: evLoop, node: c})
		s.stmts(c.Cond, in)
		s.stmts(c.Do, in)
	case *syntax.ForClause:
		in := p.in(c)
		if w, ok := c.Loop.(*syntax.WordIter); ok {
			for _, item := range w.Items {
				s.words(item, p)
				s.finds(w.Name.Value, item)
			}
		}
		s.stmts(c.Do, in)
	case *syntax.CaseClause:
		s.words(c.Word, p)
		for i, item := range c.Items {
			s.stmts(item.Stmts, p.under(guard{c, i, variables(c.Word)}))
		}
	case *syntax.BinaryCmd:
		s.stmt(c.X, p)
		if c.Op == syntax.AndStmt || c.Op == syntax.OrStmt {
			p = p.under(guard{c, 1, variables(c.X)})
		} else if k := pipedKill(c); k != nil {
			s.emit(p, event{kind: evKill, node: c, kill: k})
			return
		}
		s.stmt(c.Y, p)
	case *syntax.TimeClause:
		s.stmt(c.Stmt, p)
	case *syntax.DeclClause:
		for _, a := range c.Args {
			s.assign(a, p)
		}
	case *syntax.TestDecl:
		s.stmt(c.Body, p)
	}
}

func (s *script) ifClause(c *syntax.IfClause, p place) {
	var names []string
	for branch := 0; c != nil; branch++ {
		s.stmts(c.Cond, p)
		for _, st := range c.Cond {
			names = append(names, variables(st)...)
		}
		if len(c.Cond) == 0 { // else
			s.stmts(c.Then, p)
			return
		}
		s.stmts(c.Then, p.under(guard{c, branch, names}))
		p = p.under(guard{c, -1, names})
		c = c.Else
	}
}

// words walks the commands that are run to make a word.
func (s *script) words(w *syntax.Word, p place) {
	if w == nil {
		return
	}
	walk(w, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			s.stmts(n.Stmts, p)
			return false
		case *syntax.ProcSubst:
			s.stmts(n.Stmts, p)
			return false
		}
		return true
	})
}

func (s *script) assign(a *syntax.Assign, p place) {
	if a.Name == nil {
		s.words(a.Value, p)
		return
	}
	started := len(s.jobs)
	values := []*syntax.Word{a.Value}
	if a.Array != nil {
		for _, e := range a.Array.Elems {
			values = append(values, e.Value)
		}
	}
	var expands []string
	for _, w := range values {
		s.words(w, p)
		if w != nil {
			expands = append(expands, variables(w)...)
			s.finds(a.Name.Value, w)
		}
	}
	for _, j := range s.jobs[started:] { // h=$(procsup start …)
		if j.handle != "" {
			j.vars = append(j.vars, a.Name.Value)
		}
	}
	e := s.emit(p, event{kind: evAssign, node: a})
	if slices.Contains(expands, "!") {
		s.keepPID(a.Name.Value, e)
	}
}

// finds notes that a variable holds pids that were looked for by name.
func (s *script) finds(name string, w *syntax.Word) {
	if k := sourceOf(w); k != nil && k.how == byName {
		s.found[name] = k
	}
}

// keepPID notes that a variable holds the pid of the job started last: of one
// in each branch, when it was started under a condition that is over.
func (s *script) keepPID(name string, e *event) {
	var last *job
	for _, j := range slices.Backward(s.jobs) {
		switch {
		case j.within != e.within || j.handle != "":
		case last == nil:
			last = j
			j.vars = append(j.vars, name)
		case exclusive(j.start.guards, last.start.guards):
			j.vars = append(j.vars, name)
		default:
			return
		}
	}
}

// exclusive reports whether two things are in different branches of one
// condition.
func exclusive(a, b []guard) bool {
	return slices.ContainsFunc(a, func(g guard) bool {
		return slices.ContainsFunc(b, func(o guard) bool { return o.node == g.node && o.branch != g.branch })
	})
}
