package lint

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The lines that replace what was found. They use only verbs that procsup
// has; a test holds them against it.
const (
	readyHint  = `procsup wait-output "$h" 'the line that says it is ready' --timeout 30s    # h=$(procsup start -- SERVER)`
	cancelLine = `procsup cancel "$h"`
)

// startHint starts a job as a handle that the script's end cancels.
func (s *script) startHint(j *job) string {
	if j.handle != "" {
		return s.onExit()
	}
	if j.daemon != "" {
		return "h=$(" + foregroundHint(j) + "); " + s.onExit()
	}
	line := "h=$(" + s.startLine(j) + "); " + s.onExit()
	if _, simple := j.stmt.Cmd.(*syntax.CallExpr); !simple && len(variables(j.stmt)) > 0 {
		line += "    # export the variables it uses"
	}
	return line
}

// onExit is a trap that runs at every end that can be caught. Only bash and
// ksh run EXIT traps when a signal ends them; dash does not.
func (s *script) onExit() string {
	trap := `trap '` + cancelLine + `' EXIT`
	if s.posix {
		trap += `; trap 'exit 1' HUP INT TERM`
	}
	return trap
}

func (s *script) startLine(j *job) string {
	if call, ok := j.stmt.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 {
		if _, function := s.funcs[commandOf(call).name]; !function {
			env := s.slice(call.Pos().Offset(), call.Args[0].Pos().Offset())
			cmd := s.slice(call.Args[0].Pos().Offset(), call.Args[len(call.Args)-1].End().Offset())
			for _, off := range []string{"nohup ", "setsid "} {
				cmd = strings.TrimPrefix(cmd, off)
			}
			return oneLine(env + "procsup start -- " + cmd)
		}
	}
	code := s.slice(j.stmt.Cmd.Pos().Offset(), j.stmt.Cmd.End().Offset())
	quoted, err := syntax.Quote(code, syntax.LangPOSIX)
	if err != nil || strings.Contains(code, "\n") || len(code) > 100 {
		quoted = "'" + j.name + " …'"
	}
	return oneLine("procsup start -- sh -c " + quoted)
}

func (s *script) slice(from, to uint) string {
	if from > to || int(to) > len(s.src) {
		return ""
	}
	return string(s.src[from:to])
}

func oneLine(t string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(t, "\\\n", " ")), " ")
}

func foregroundHint(j *job) string {
	switch j.daemon {
	case "nginx":
		return "procsup start -- nginx -g 'daemon off;'"
	case "sshd":
		return "procsup start -- /usr/sbin/sshd -D"
	}
	return "procsup start -- " + j.daemon + " …" // with its flag for staying in front
}

// cancelHint cancels the handle of what was killed by name.
func (s *script) cancelHint(k *kill) string {
	for _, j := range s.jobs {
		if j.handle == "" && !j.finite && s.reaches(k, j) {
			return cancelLine + "    # h=$(" + s.startLine(j) + ")"
		}
	}
	return cancelLine + "    # h=$(procsup start -- CMD) where it is started"
}

// pollHint bounds a loop, or waits for the line of a server of one's own.
func (s *script) pollHint(w *syntax.WhileClause) string {
	for _, j := range s.jobs {
		if !j.finite && int(j.stmt.Pos().Line()) < line(w) {
			return readyHint
		}
	}
	code := s.slice(w.Pos().Offset(), w.End().Offset())
	quoted, err := syntax.Quote(oneLine(strings.ReplaceAll(code, "\n", "; ")), syntax.LangPOSIX)
	if err != nil || len(code) > 100 || strings.Contains(code, "\n") {
		quoted = "'until …; do sleep 0.1; done'"
	}
	return "procsup run --deadline 30s -- sh -c " + quoted
}
