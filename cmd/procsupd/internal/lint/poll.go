package lint

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// probes ask a server whether it is there.
var probes = strings.Fields(`curl wget nc ncat netcat pg_isready redis-cli mysqladmin mysql psql mongo mongosh http httping kubectl docker podman
	crictl etcdctl rabbitmqctl rabbitmq-diagnostics grpcurl grpc_health_probe dig nslookup host ping ss netstat lsof systemctl xdpyinfo xset socat telnet`)

var tcpPath = regexp.MustCompile(`/dev/(tcp|udp)/`)

// polling is the rule poll-for-readiness.
func (s *script) polling() (found []Finding) {
	for _, e := range s.events {
		w, ok := e.node.(*syntax.WhileClause)
		if e.kind != evLoop || !ok || e.root == "trap" || !pauses(w) || bounded(w) {
			continue
		}
		what := s.asks(w)
		if what == "" {
			continue
		}
		why := what + " is asked again and again, for ever if it never comes: a server that died is waited for without end"
		found = append(found, s.finding(w, RulePoll, &outcome{Unbounded, Note, why}, "", s.pollHint(w)))
	}
	return found
}

// asks says what a loop waits for; "" when it is no wait for readiness.
func (s *script) asks(w *syntax.WhileClause) string {
	lists := [][]*syntax.Stmt{w.Cond}
	if always(w) {
		if !leaves(w.Do) {
			return "" // a loop that does its work for ever
		}
		lists = [][]*syntax.Stmt{w.Do}
	} else if !w.Until && !negated(w.Cond) {
		return "" // as long as it is there
	}
	local := slices.ContainsFunc(s.jobs, func(j *job) bool { return !j.finite }) // files tell of what this script starts
	what := ""
	for _, list := range lists {
		for _, st := range list {
			walk(st, func(n syntax.Node) bool {
				if what == "" {
					what = probe(n, local)
				}
				return what == ""
			})
		}
	}
	return what
}

func probe(n syntax.Node, local bool) string {
	switch n := n.(type) {
	case *syntax.CallExpr:
		if len(n.Args) == 0 {
			return ""
		}
		c := commandOf(n)
		switch {
		case slices.Contains(probes, c.name):
			return c.name
		case local && slices.Contains([]string{"grep", "egrep", "fgrep"}, c.name) && len(c.args) > 0:
			return "grep in " + last(c.args)
		case local && (c.name == "[" || c.name == "test") && slices.Contains([]string{"-f", "-e", "-s", "-S", "-p", "-r"}, testOp(c.args)):
			return "the file " + last(slices.DeleteFunc(slices.Clone(c.args), func(a string) bool { return a == "]" }))
		}
	case *syntax.UnaryTest:
		if local && slices.Contains([]string{"-f", "-e", "-s", "-S", "-p", "-r"}, n.Op.String()) {
			return "a file"
		}
	case *syntax.Redirect:
		if n.Word != nil && tcpPath.MatchString(text(n.Word)) {
			return "a port"
		}
	case *syntax.Word:
		if tcpPath.MatchString(text(n)) {
			return "a port"
		}
	}
	return ""
}

func testOp(args []string) string {
	for _, a := range args {
		if a != "!" {
			return a
		}
	}
	return ""
}

// negated reports whether a while loop goes on as long as something is not.
func negated(cond []*syntax.Stmt) bool {
	return slices.ContainsFunc(cond, func(st *syntax.Stmt) (not bool) {
		walk(st, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.Stmt:
				not = not || n.Negated
			case *syntax.UnaryTest:
				not = not || n.Op == syntax.TsNot || n.Op == syntax.TsEmpStr
			case *syntax.BinaryTest:
				not = not || n.Op == syntax.TsNoMatch
			case *syntax.CallExpr:
				if len(n.Args) > 1 {
					second := text(n.Args[1])
					not = not || (text(n.Args[0]) == "[" || text(n.Args[0]) == "test") &&
						(second == "!" || second == "-z" || slices.ContainsFunc(n.Args, func(w *syntax.Word) bool { return text(w) == "!=" }))
				}
			}
			return true
		})
		return not
	})
}

func pauses(w *syntax.WhileClause) (sleeps bool) {
	walk(w, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
			name := text(c.Args[0])
			sleeps = sleeps || name == "sleep" || name == "usleep"
		}
		return !sleeps
	})
	return sleeps
}

// bounded reports whether a loop ends also when what it asks for never comes:
// it counts, looks at a clock or at the process, or gives up.
func bounded(w *syntax.WhileClause) bool {
	for _, st := range w.Do {
		if counts(st.Cmd) {
			return true
		}
	}
	ends := false
	walk(w, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ParamExp:
			ends = ends || n.Param != nil && (n.Param.Value == "SECONDS" || n.Param.Value == "EPOCHSECONDS")
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				ends = ends || givesUp(commandOf(n))
			}
		}
		return !ends
	})
	for _, st := range w.Cond {
		walk(st, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.ArithmCmd, *syntax.ArithmExp:
				ends = ends || !always(w)
			case *syntax.CallExpr:
				ends = ends || slices.ContainsFunc(n.Args, func(a *syntax.Word) bool { return slices.Contains([]string{"-lt", "-gt", "-le", "-ge"}, text(a)) })
			}
			return !ends
		})
	}
	return ends
}

// counts sees i=$((i+1)), ((i++)), let i+=1 and i=`expr $i + 1`.
func counts(c syntax.Command) bool {
	switch c := c.(type) {
	case *syntax.ArithmCmd, *syntax.LetClause:
		return true
	case *syntax.BinaryCmd: // ((++i > 9)) && exit; [ $((i++)) -gt 9 ] && …
		return counts(c.X.Cmd)
	case *syntax.IfClause:
		return slices.ContainsFunc(c.Cond, func(st *syntax.Stmt) bool { return counts(st.Cmd) })
	case *syntax.CallExpr:
		for _, n := range c.Assigns {
			if n.Value != nil && (strings.Contains(text(n.Value), "…") && !strings.Contains(text(n.Value), "$(…)") || calls(n.Value, "expr", "date")) {
				return true
			}
		}
		for _, w := range c.Args {
			if strings.Contains(text(w), "…") && !strings.Contains(text(w), "$(…)") {
				return true
			}
		}
	}
	return false
}

func calls(n syntax.Node, names ...string) (does bool) {
	walk(n, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
			does = does || slices.Contains(names, text(c.Args[0]))
		}
		return !does
	})
	return does
}

func givesUp(c *command) bool {
	switch c.name {
	case "exit", "return":
		return c.arg(0) != "0" && (c.name == "exit" || c.arg(0) != "")
	case "date", "die", "fail", "abort":
		return true
	case "kill":
		return c.arg(0) == "-0" || c.arg(0) == "-s" && c.arg(1) == "0"
	case "read":
		return slices.Contains(c.args, "-t")
	}
	return c.has("timeout") || c.name == "timeout"
}
