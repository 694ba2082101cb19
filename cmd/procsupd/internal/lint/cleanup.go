package lint

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"mvdan.cc/sh/v3/syntax"
)

// An outcome is what is wrong with one job.
type outcome struct {
	verdict Verdict
	level   Level
	why     string
}

var worst = map[Verdict]int{NoClean: 3, WeakTrap: 2, NoTrap: 1}

// cleanup is the rule long-running-without-cleanup.
func (s *script) cleanup() (found []Finding) {
	clean := map[*syntax.Stmt]bool{}
	bad := map[*syntax.Stmt]*outcome{}
	byProgram := map[string]int{}
	for _, j := range s.jobs { // a statement that runs several times is judged by its best run
		o := s.judge(j)
		if o == nil {
			clean[j.stmt] = true
		} else if bad[j.stmt] == nil || worst[o.verdict] < worst[bad[j.stmt].verdict] {
			bad[j.stmt] = o
		}
	}
	for _, j := range s.jobs {
		if o := bad[j.stmt]; o != nil && !clean[j.stmt] {
			byProgram[j.program()] = max(byProgram[j.program()], worst[o.verdict])
		}
	}
	seen := map[*syntax.Stmt]bool{}
	for _, j := range s.jobs {
		o := bad[j.stmt]
		if o == nil || clean[j.stmt] || seen[j.stmt] {
			continue
		}
		seen[j.stmt] = true
		if worst[o.verdict] == byProgram[j.program()] { // rounds of the same program: the one that is worst off
			found = append(found, s.finding(j.stmt, RuleCleanup, o, j.name, s.startHint(j)))
		}
		if j.daemon != "" {
			d := &outcome{Daemon, Note, fmt.Sprintf("%s detaches itself: the process in $! ends at once, and neither kill nor wait reaches the server", j.daemon)}
			found = append(found, s.finding(j.stmt, RuleCleanup, d, j.name, foregroundHint(j)))
		}
	}
	return found
}

func (s *script) finding(n syntax.Node, rule string, o *outcome, name, fix string) Finding {
	at := max(line(n), 1)
	return Finding{File: s.name, Line: at, Column: s.column(n.Pos()), EndLine: max(at, int(n.End().Line())),
		Level: o.level, Rule: rule, Verdict: o.verdict, Name: name, Why: o.why, Fix: fix}
}

// column counts itself where the parser's columns end, at 16,383.
func (s *script) column(p syntax.Pos) int {
	if p.Col() > 0 {
		return int(p.Col())
	}
	if n := int(p.Offset()); p.IsValid() && n <= len(s.src) {
		return n - bytes.LastIndexByte(s.src[:n], '\n')
	}
	return 1
}

func line(n syntax.Node) int { return int(n.Pos().Line()) }

// judge says what is wrong with one job; nil: nothing, or nothing that can be
// told from this file.
func (s *script) judge(j *job) *outcome {
	if j.finite && j.handle == "" || s.service || j.handle != "" && s.bound() {
		return nil
	}
	guard := s.guardOf(j)
	how, at := s.flowEnd(j)
	switch {
	case guard.full && guard.exit,
		guard.full && guard.term && how != leftAlone:
		return nil
	case guard.full:
		return &outcome{WeakTrap, Warning, fmt.Sprintf("the trap at line %d ends %q, but only for %s: %s leaves it running",
			guard.line, j.name, guard.signals, guard.missed(how))}
	case guard.why != "":
		return &outcome{WeakTrap, Warning, fmt.Sprintf("the trap at line %d cannot end %q: %s", guard.line, j.name, guard.why)}
	case how == waitedFor:
		return nil
	case how == endedWhenWell:
		return &outcome{NoTrap, Warning, fmt.Sprintf("%q is ended at line %d only when all goes well: %sCtrl-C or TERM before that leaves it running; no EXIT trap ends it",
			j.name, at, map[bool]string{true: "an error under set -e, ", false: ""}[s.errexit])}
	case j.pidFile || s.elsewhere(j) || s.sources && s.handedOn(j):
		return nil
	}
	level, tail := Warning, ""
	if s.launches(j) {
		level, tail = Note, "; a launcher that hands it to the user says so with nohup and a pid file"
	}
	if last := s.lastCommand(); j.watched && last != nil && last.has("exec") {
		level, tail = Note, "; as long as this is the first process of a container, the container's end is its end"
	}
	return &outcome{NoClean, level, fmt.Sprintf("%q goes on in the background and nothing ends it: no EXIT trap, no wait, no %s%s",
		j.name, map[bool]string{true: "procsup cancel", false: "kill"}[j.handle != ""], tail)}
}

// A guarding is what traps do for a job.
type guarding struct {
	full, exit, term bool
	signals          string
	why              string // it tries and cannot
	line             int
}

func (g guarding) missed(how ending) string {
	switch {
	case how == leftAlone && !g.term:
		return "TERM, an error or a normal end"
	case how == leftAlone:
		return "a normal end or an error"
	}
	return "TERM or an error"
}

// guardOf sums up all traps for a job.
func (s *script) guardOf(j *job) (g guarding) {
	for _, t := range s.traps {
		if t.within != nil && t.within != j.within {
			continue
		}
		ends, why := s.trapEnds(t, j)
		switch {
		case ends:
			g.full, g.line = true, line(t.node)
			g.exit = g.exit || t.covers("EXIT")
			g.term = g.term || t.covers("TERM")
			for _, sig := range t.signals {
				g.signals += map[bool]string{true: ", "}[g.signals != ""] + sig
			}
		case why != "" && g.why == "":
			g.why, g.line = why, cmp.Or(g.line, line(t.node))
		}
	}
	return g
}

// trapEnds reports whether a trap ends a job, or why it only tries.
func (s *script) trapEnds(t *trap, j *job) (ends bool, why string) {
	if t.unseen {
		return true, ""
	}
	for _, e := range t.events {
		if e.kind != evKill && e.kind != evWait {
			continue
		}
		k := e.kill
		switch reaches := s.reaches(k, j); {
		case !reaches && k.how == byName && j.handle == "":
			k.misses = true
			why = cmp.Or(why, fmt.Sprintf("it kills what is named %q, which this is not", k.name))
		case !reaches || e.kind == evWait && why != "": // waiting for what was not reached
		case k.how == byPID && tooEarly(t, k, j):
			why = fmt.Sprintf("double quotes put in $%s when the trap is set, before it has a value", k.vars[0])
		case e.kind == evKill && (k.how == byPID || k.how == byJobs) && j.leader != "" && !s.wholeJob(k):
			why = j.leader
		default:
			return true, ""
		}
	}
	return false, why
}

// tooEarly sees `trap "kill $PID" EXIT` in front of PID=$!.
func tooEarly(t *trap, k *kill, j *job) bool {
	return len(k.vars) > 0 && t.seq <= j.start.seq && j.has(k.vars) &&
		!slices.ContainsFunc(k.vars, func(v string) bool { return !slices.Contains(t.early, v) })
}

// wholeJob reports whether a kill by job number reaches the job's group.
func (s *script) wholeJob(k *kill) bool {
	return s.monitor && slices.ContainsFunc(k.what, func(w string) bool { return w != "" && w[0] == '%' })
}

// An ending is how the script's own order ends a job.
type ending int

const (
	leftAlone ending = iota
	endedWhenWell
	waitedFor
)

// flowEnd looks for what ends a job when no signal comes and nothing fails.
func (s *script) flowEnd(j *job) (how ending, at int) {
	for _, e := range s.events[j.start.seq+1:] {
		if e.kind != evKill && e.kind != evWait || e.within != j.within || e.root != j.start.root || !s.reaches(e.kill, j) ||
			exclusive(e.guards, j.start.guards) {
			continue
		}
		sure := unconditional(e, j)
		switch {
		case sure && (e.kind == evWait || j.handle != "") && !s.mayLeave(j, e):
			return waitedFor, line(e.node)
		case sure:
			return endedWhenWell, line(e.node)
		case how == leftAlone:
			how, at = endedWhenWell, line(e.node)
		}
	}
	return how, at
}

// mayLeave reports whether the script may end between the start of a handle
// and the event. A job that is waited for ends by itself: it may.
func (s *script) mayLeave(j *job, until *event) bool {
	if j.handle == "" {
		return false
	}
	for _, e := range s.events[j.start.seq+1 : until.seq] {
		if e.within != j.within || e.root != j.start.root {
			continue
		}
		if e.kind == evExit || s.errexit && (e.kind == evReady || e.kind == evRun && e.cmd != nil && !short(e.cmd)) {
			return true
		}
	}
	return false
}

// unconditional reports whether an event happens whenever the job was started.
func unconditional(e *event, j *job) bool {
	return !slices.ContainsFunc(e.guards, func(g guard) bool {
		shared := slices.ContainsFunc(j.start.guards, func(o guard) bool { return o.node == g.node && o.branch == g.branch })
		return !shared && !j.has(g.names)
	})
}

// elsewhere reports whether a function that is called from outside this file,
// or by a computed name, ends the job.
func (s *script) elsewhere(j *job) bool {
	if j.start.root == "" && !s.guess && !s.sources {
		return false
	}
	return slices.ContainsFunc(s.events, func(e *event) bool {
		return (e.kind == evKill || e.kind == evWait) && e.root != j.start.root && s.reaches(e.kill, j)
	})
}

// handedOn reports whether something that is not in this file gets the pid.
func (s *script) handedOn(j *job) bool {
	return slices.ContainsFunc(s.events, func(e *event) bool {
		return e.kind == evRun && e.cmd != nil && e.seq > j.start.seq && !short(e.cmd) && e.cmd.name != "kill" && j.has(argVars(e.cmd))
	})
}

// launches reports whether the script only starts what it was called with.
func (s *script) launches(j *job) bool {
	with := j.main != nil && slices.ContainsFunc(j.main.args, func(a string) bool { return a == "$@" || a == "$*" })
	return with && !slices.ContainsFunc(s.events[j.start.seq+1:], func(e *event) bool {
		return e.kind == evRun && e.within == nil && !short(e.cmd) && e.root == j.start.root && !exclusive(e.guards, j.start.guards)
	})
}

// bound reports whether handles end with a session that ends with the script.
func (s *script) bound() bool {
	return slices.ContainsFunc(s.events, func(e *event) bool { return e.kind == evSession })
}

func (s *script) lastCommand() *command {
	if len(s.file.Stmts) == 0 {
		return nil
	}
	if call, ok := s.file.Stmts[len(s.file.Stmts)-1].Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 {
		return commandOf(call)
	}
	return nil
}
