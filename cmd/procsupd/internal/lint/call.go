package lint

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// tearDown are functions that a test framework calls at the end of each test.
var tearDown = regexp.MustCompile(`(?i)^(one_?time_?)?tear_?down(_file|_suite)?$`)

// waiters are programs that return once something is ready.
var waiters = []string{"wait-on", "wait-for-it", "wait-for-it.sh", "wait-for.sh", "wait-for", "wait4x", "dockerize", "wait-port", "start-server-and-test", "waitforport", "wait_for_port", "inotifywait"}

// call is one simple command: what it does to jobs, or the body of the
// function that it calls.
func (s *script) call(st *syntax.Stmt, call *syntax.CallExpr, p place) {
	for _, w := range call.Args {
		s.words(w, p)
	}
	for _, a := range call.Assigns {
		s.assign(a, p)
	}
	if len(call.Args) == 0 {
		return
	}
	c := commandOf(call)
	if body, ok := s.funcs[c.name]; ok && !c.has("command") {
		s.enter(c, body, p)
		return
	}
	if strings.HasPrefix(c.name, "$") && c.name != "$(…)" {
		s.guess = true
	}
	s.simple(st, c, p)
}

// enter walks the body of a function where it is called, unless it calls
// itself.
func (s *script) enter(c *command, body *syntax.Stmt, p place) {
	s.called[c.name] = true
	if slices.Contains(p.calls, c.name) || len(p.calls) > 20 {
		return
	}
	p.calls = append(slices.Clip(p.calls), c.name)
	s.stmt(body, p)
}

func (s *script) simple(st *syntax.Stmt, c *command, p place) {
	e := event{kind: evRun, node: st, cmd: c}
	switch c.name {
	case "trap":
		s.trap(st, c, p)
		return
	case "set", "setopt":
		s.options(c, &e)
	case "exit", "return":
		e.kind = evExit
	case "sleep", "usleep":
		e.kind = evSleep
	case "wait", "fg":
		e.kind, e.kill = evWait, &kill{how: byPID, vars: argVars(c), what: c.args}
	case "eval":
		s.eval()
	case "echo", "printf", "tee":
		if slices.Contains(argVars(c), "!") && len(st.Redirs) > 0 {
			s.writesPID(p)
		}
	case "procsup":
		s.procsup(st, c, p)
		return
	default:
		switch k := killOf(c); {
		case k != nil:
			e.kind, e.kill = evKill, k
			if k.how == byPID && k.signal == "0" { // asks only
				e.kind = evRun
				s.watched(k)
			}
		case slices.Contains(waiters, c.name) || slices.ContainsFunc(c.args, func(a string) bool { return slices.Contains(waiters, a) }):
			e.kind = evReady
		}
	}
	s.emit(p, e)
}

// writesPID notes that the pid of the job started last was written to a file.
func (s *script) writesPID(p place) {
	for _, j := range slices.Backward(s.jobs) {
		if j.within == p.job && j.handle == "" {
			j.pidFile = true
			return
		}
	}
}

// reads reports whether a command runs another script in this shell.
func reads(call *syntax.CallExpr) bool {
	return len(call.Args) > 0 && slices.Contains([]string{".", "source", "eval", "load"}, text(call.Args[0]))
}

func argVars(c *command) (names []string) {
	if len(c.word) == 0 {
		return nil
	}
	for _, w := range c.word[1:] {
		names = append(names, variables(w)...)
	}
	return names
}

func (s *script) options(c *command, e *event) {
	for i, a := range c.args {
		on := strings.HasPrefix(a, "-")
		short := on && !strings.HasPrefix(a, "--")
		long := ""
		if short && strings.HasSuffix(a, "o") {
			long = c.arg(i + 1)
		}
		if short && strings.Contains(a, "e") || long == "errexit" {
			s.errexit, e.kind = true, evErrexit
		}
		if short && strings.Contains(a, "m") || long == "monitor" {
			s.monitor = true
		}
	}
}

// eval of what `procsup session open --shell` prints binds the session to the
// script; any other eval may call anything.
func (s *script) eval() {
	for _, e := range s.events {
		if e.kind == evSession {
			return
		}
	}
	s.guess = true
}

// watched notes that the script looks whether a job is still alive.
func (s *script) watched(k *kill) {
	for _, j := range s.jobs {
		if j.has(k.vars) {
			j.watched = true
		}
	}
}

// procsup is one call of ours.
func (s *script) procsup(st *syntax.Stmt, c *command, p place) {
	rest := c.word[1:]
	for len(rest) > 0 && strings.HasPrefix(text(rest[0]), "-") {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return
	}
	verb, args := text(rest[0]), rest[1:]
	e := event{kind: evRun, node: st, cmd: c}
	switch verb {
	case "start":
		j := &job{stmt: st, handle: "procsup", within: p.job, named: flagValue(args, "--name", "-n")}
		s.describeHandle(j, args)
		j.pidFile = len(st.Redirs) > 0 && toFile(st.Redirs)
		e.kind, e.job = evStart, j
		j.start = s.emit(p, e)
		s.jobs = append(s.jobs, j)
		return
	case "cancel":
		e.kind, e.kill = evKill, &kill{how: byHandle, vars: argVars(c), what: c.args[1:]}
	case "wait":
		e.kind, e.kill = evWait, &kill{how: byHandle, vars: argVars(c), what: c.args[1:]}
	case "wait-output", "wait-ready", "await":
		e.kind = evReady
	case "session":
		switch sub := c.arg(1); {
		case sub == "open" && slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--bind-pid") }):
			e.kind = evSession
		case sub == "close" || sub == "shutdown" || sub == "delete":
			e.kind, e.kill = evKill, &kill{how: byGroup, handles: true}
		}
	case "daemon":
		if slices.Contains(c.args, "--stop") {
			e.kind, e.kill = evKill, &kill{how: byGroup, handles: true}
		}
	}
	s.emit(p, e)
}

// toFile reports whether standard output is kept: the id is handed on.
func toFile(redirs []*syntax.Redirect) bool {
	return slices.ContainsFunc(redirs, func(r *syntax.Redirect) bool {
		return r.Op != syntax.RdrIn && r.N == nil && r.Word != nil && text(r.Word) != "/dev/null"
	})
}

func flagValue(args []*syntax.Word, names ...string) string {
	for i, w := range args {
		a := text(w)
		if a == "--" {
			return ""
		}
		if slices.Contains(names, a) && i+1 < len(args) {
			return text(args[i+1])
		}
		for _, n := range names {
			if v, ok := strings.CutPrefix(a, n+"="); ok {
				return v
			}
		}
	}
	return ""
}
