package lint

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// sleeping is the rule sleep-for-readiness: a fixed sleep behind a start, or
// between a stop and a start.
func (s *script) sleeping() (found []Finding) {
	for i, e := range s.events {
		if e.kind != evSleep || e.within != nil || strings.HasPrefix(e.cmd.arg(0), "inf") {
			continue
		}
		start := s.startBefore(i)
		switch {
		case start == "" && !s.startNext(i), s.isGrace(i):
			continue
		}
		what, fix := "sleep "+e.cmd.arg(0), readyHint
		why := fmt.Sprintf("%s stands for the time that %s may need: too short on a slow day, too long on all others", what, orServer(start))
		if start == "" {
			why = fmt.Sprintf("%s hopes that what was there before has ended; wait for its end", what)
			fix = cancelLine + "    # returns once it is gone"
		}
		if start != "" && i+1 < len(s.events) && s.events[i+1].kind == evKill {
			why = fmt.Sprintf("%s is the time that %s is given: it runs on if the script is ended in between", what, orServer(start))
			fix = "procsup run --deadline " + strings.TrimPrefix(what, "sleep ") + " -- " + start
		}
		found = append(found, s.finding(e.node, RuleSleep, &outcome{Sleep, Note, why}, start, fix))
	}
	return found
}

func orServer(name string) string {
	if name == "" {
		return "a server"
	}
	return fmt.Sprintf("%q", name)
}

// startBefore names what was started before the event in the same loop, or in
// no loop at all.
func (s *script) startBefore(i int) string {
	at := s.events[i]
	for _, e := range slices.Backward(s.events[:i]) {
		if e.root != at.root || e.within != nil || !sameLoop(e, at) {
			continue
		}
		switch {
		case e.kind == evSleep, e.kind == evWait, e.kind == evRun && !short(e.cmd) && !startsService(e.cmd):
			return "" // it was waited for, or used, before
		case e.kind == evStart && (!e.job.finite || e.job.handle != ""):
			return e.job.name
		case e.kind == evRun && startsService(e.cmd):
			return strings.TrimSpace(e.cmd.name + " " + strings.Join(e.cmd.args[:min(2, len(e.cmd.args))], " "))
		}
	}
	return ""
}

// sameLoop reports whether each loop around the sleep is also around the start.
func sameLoop(start, sleep *event) bool {
	for _, l := range sleep.loops {
		if !slices.Contains(start.loops, l) {
			return false
		}
	}
	return true
}

// startNext reports whether the next thing that happens is a start.
func (s *script) startNext(i int) bool {
	at := s.events[i]
	for _, e := range s.events[i+1:] {
		switch {
		case e.root != at.root || len(e.loops) != len(at.loops):
			return false
		case e.kind == evStart:
			return !e.job.finite
		case e.kind == evRun && short(e.cmd) || e.kind == evAssign:
		default:
			return false
		}
	}
	return false
}

// isGrace sees the time between a kill and whatever looks at its effect.
func (s *script) isGrace(i int) bool {
	at := s.events[i]
	for _, e := range slices.Backward(s.events[:i]) {
		if e.root != at.root || e.within != nil || e.kind == evAssign || e.kind == evRun && short(e.cmd) {
			continue
		}
		return e.kind == evKill && !s.startNext(i)
	}
	return false
}

// startsService reports whether a command starts something and returns.
func startsService(c *command) bool {
	if c == nil {
		return false
	}
	a := c.args
	switch c.name {
	case "systemctl":
		return slices.Contains(a, "start") || slices.Contains(a, "restart")
	case "service":
		return len(a) > 1 && (a[1] == "start" || a[1] == "restart")
	case "docker", "podman", "docker-compose":
		up := slices.Contains(a, "run") || slices.Contains(a, "up")
		return up && slices.ContainsFunc(a, func(f string) bool { return f == "-d" || f == "--detach" || f == "-itd" || f == "-dit" })
	}
	return detaches(c) != ""
}

// Words by which a server and its client are known: for a note only.
var (
	serverWords = regexp.MustCompile(`(?i)(^|[ /:_.-])(start|serve|server|dev|daemon|runserver|preview|ganache|ganache-cli|listen|http-server|anvil|hardhat)([ :_.-]|$)`)
	clientWords = regexp.MustCompile(`(?i)(^|[ /:_.-])(tests?|e2e|spec|cypress|jest|mocha|playwright|protractor|wdio|newman|pytest|truffle|karma|curl|wget|bench|ab|wrk|k6|grpcurl|redis-cli|psql|mysql)([ :_.-]|$)`)
)

// unawaited is the verdict NOWAIT: a server is used as soon as it is started.
func (s *script) unawaited() (found []Finding) {
	for _, j := range s.jobs {
		if j.handle != "" || j.finite || j.within != nil || !serverWords.MatchString(j.name) {
			continue
		}
		if c := s.firstUse(j); c != nil {
			use := strings.TrimSpace(c.name + " " + strings.Join(c.args[:min(2, len(c.args))], " "))
			why := fmt.Sprintf("%q is used by %q at line %d without waiting until it is ready", j.name, use, line(c.call))
			found = append(found, s.finding(j.stmt, RuleSleep, &outcome{NoWait, Note, why}, j.name, readyHint))
		}
	}
	return found
}

func (s *script) firstUse(j *job) *command {
	for _, e := range s.events[j.start.seq+1:] {
		if e.within != nil || e.root != j.start.root {
			continue
		}
		switch e.kind {
		case evReady, evSleep, evLoop, evKill, evWait:
			return nil
		case evRun:
			if e.cmd.has("timeout") {
				return nil
			}
			if clientWords.MatchString(e.cmd.name+" "+strings.Join(e.cmd.args, " ")) && !short(e.cmd) {
				return e.cmd
			}
		}
	}
	return nil
}

// named is the rule kill-by-name.
func (s *script) named() (found []Finding) {
	add := func(n syntax.Node, k *kill) {
		if k == nil || k.how != byName || k.signal == "0" || k.misses {
			return
		}
		by, level := fmt.Sprintf("the name %q", k.name), Warning
		switch {
		case k.port:
			by = "a port or a file"
		case strings.ContainsAny(k.name, "$…"):
			by = "a name"
		case k.name == "":
			by = "a look through all processes"
		}
		verb := "ends"
		if slices.Contains([]string{"HUP", "USR1", "USR2", "WINCH", "CONT"}, k.signal) {
			verb, level = "signals", Note
		}
		why := fmt.Sprintf("%s processes by %s: whoever else's process matches is hit too", verb, by)
		found = append(found, s.finding(n, RuleName, &outcome{Broad, level, why}, k.name, s.cancelHint(k)))
	}
	for _, e := range s.events {
		if e.kind == evKill {
			add(e.node, s.resolved(e.kill))
		}
	}
	for _, t := range s.traps {
		for _, e := range t.events {
			if e.kind != evKill {
				continue
			}
			n := e.node
			if e.fn == "" { // written in the trap's own words
				n = t.node
			}
			add(n, s.resolved(e.kill))
		}
	}
	return found
}

// resolved is a kill of a variable that holds what pgrep found.
func (s *script) resolved(k *kill) *kill {
	if k.how != byPID {
		return k
	}
	for _, v := range k.vars {
		if from := s.found[v]; from != nil {
			r := *k
			r.how, r.name, r.port = from.how, from.name, from.port
			return &r
		}
	}
	return k
}
