package lint

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The ways by which processes are picked for a signal.
type how int

const (
	byPID    how = iota // $!, $PID, %1, $(cat file)
	byJobs              // $(jobs -p): the leaders of all jobs
	byChild             // pkill -P: one level of children
	byGroup             // 0, -$$, a session: the whole tree
	byName              // pkill, killall, $(pgrep …), a port
	byHandle            // procsup cancel
)

// A kill is what ends something, or waits for it.
type kill struct {
	how     how
	signal  string // without SIG; "" is TERM
	vars    []string
	what    []string // the operands, as they are written
	name    string   // byName: what is looked for
	port    bool     // byName: whoever holds a port or a file
	lines   bool     // byName: looks into whole command lines
	handles bool     // reaches handles only
	misses  bool     // a finding says already that it hits others only
}

// harmless are signals that a command is not meant to end by.
var harmless = []string{"0", "USR1", "USR2", "WINCH", "CONT", "STOP", "TSTP", "URG", "CHLD"}

// reaches reports whether k is about j. What cannot be told counts as yes.
func (s *script) reaches(k *kill, j *job) bool {
	if slices.Contains(harmless, k.signal) {
		return false
	}
	if j.handle != "" {
		return s.reachesHandle(k, j)
	}
	switch {
	case k.handles || k.how == byHandle:
		return false
	case k.how == byGroup || k.how == byJobs || k.how == byChild:
		return true
	case k.how == byName:
		return k.port || k.name == "" || strings.Contains(k.name, "$") || j.says(k.name) ||
			k.lines && j.main != nil && slices.Contains(launchers, j.main.name) // what it launches may have that name
	case len(k.what) == 0 || j.has(k.vars):
		return true
	case slices.Contains(k.vars, "!"):
		return j == s.jobs[len(s.jobs)-1]
	}
	for _, other := range s.jobs {
		if other.has(k.vars) {
			return false // it is about that one
		}
	}
	return true
}

func (s *script) reachesHandle(k *kill, j *job) bool {
	if k.how != byHandle {
		return k.handles
	}
	if j.has(k.vars) || j.named != "" && slices.Contains(k.what, j.named) {
		return true
	}
	for _, other := range s.jobs {
		if other.handle != "" && (other.has(k.vars) || other.named != "" && slices.Contains(k.what, other.named)) {
			return false
		}
	}
	return len(k.vars) > 0 || slices.ContainsFunc(k.what, func(w string) bool { return strings.ContainsAny(w, "$…") || strings.HasPrefix(w, "--all") })
}

// killOf says what a command ends; nil: nothing.
func killOf(c *command) *kill {
	switch c.name {
	case "kill":
		return plainKill(c)
	case "pkill", "killall", "skill", "killall5":
		return nameKill(c)
	case "fuser":
		if slices.ContainsFunc(c.args, func(a string) bool {
			return a == "--kill" || strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.Contains(a, "k") && a == strings.ToLower(a)
		}) {
			return &kill{how: byName, port: true, name: last(c.args)}
		}
	case "npx", "kill-port":
		if c.name == "kill-port" || slices.Contains(c.args, "kill-port") {
			return &kill{how: byName, port: true, name: last(c.args)}
		}
	}
	return nil
}

func last(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[len(list)-1]
}

func plainKill(c *command) *kill {
	k := &kill{how: byPID}
	words := c.word[1:]
	for len(words) > 0 {
		a := text(words[0])
		if len(a) < 2 || a[0] != '-' {
			break
		}
		words = words[1:]
		if a == "--" {
			break
		}
		if a == "-l" || a == "-L" || a == "--list" {
			return nil
		}
		if (a == "-s" || a == "-n") && len(words) > 0 {
			k.signal, words = strings.TrimPrefix(text(words[0]), "SIG"), words[1:]
			continue
		}
		if strings.ContainsAny(a, "$") && len(words) == 0 { // kill -$pgid
			return &kill{how: byGroup, what: []string{a}}
		}
		k.signal = strings.TrimPrefix(strings.TrimPrefix(a, "-"), "SIG")
	}
	for _, w := range words {
		t := text(w)
		k.what = append(k.what, t)
		k.vars = append(k.vars, variables(w)...)
		from := sourceOf(w)
		switch {
		case t == "0" || len(t) > 1 && t[0] == '-':
			k.how = byGroup
		case from != nil:
			k.how, k.name, k.port, k.lines = from.how, from.name, from.port, from.lines
		}
	}
	if len(words) == 0 {
		return nil
	}
	return k
}

func nameKill(c *command) *kill {
	k := &kill{how: byName}
	valued := "gGPuUstFOx" // pkill(1); killall(1) has u s n o y Z
	if c.name == "killall" {
		valued = "usnoyZ"
	}
	for i := 0; i < len(c.args); i++ {
		a := c.args[i]
		switch {
		case len(a) < 2 || a[0] != '-':
			k.what = append(k.what, a)
		case c.name == "pkill" && (strings.HasPrefix(a, "-P") || strings.HasPrefix(a, "--parent")):
			k.how = byChild
		case c.name == "pkill" && (strings.HasPrefix(a, "-F") || strings.HasPrefix(a, "--pidfile")):
			k.how = byPID
		case c.name == "pkill" && (strings.HasPrefix(a, "-g") || strings.HasPrefix(a, "-s") && len(a) == 2 || strings.HasPrefix(a, "--pgroup") || strings.HasPrefix(a, "--session")):
			k.how = byGroup
		case a == "-f" || a == "--full":
			k.lines = true
		case a == "-l" || a == "--list" || a == "-V" || a == "--version":
			return nil
		case strings.Trim(a[1:], "0123456789") == "" || strings.ToUpper(a) == a:
			k.signal = strings.TrimPrefix(a[1:], "SIG")
		}
		if len(a) == 2 && a[0] == '-' && strings.IndexByte(valued, a[1]) >= 0 && a != "-x" {
			if i++; a == "-s" && c.name == "killall" {
				k.signal = strings.TrimPrefix(c.arg(i), "SIG")
			}
		}
	}
	if k.how == byName {
		k.name = last(k.what)
	}
	return k
}

// sourceOf says how the commands in a word find pids; nil: not by commands.
func sourceOf(n syntax.Node) (k *kill) {
	if isNil(n) {
		return nil
	}
	walk(n, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		switch c := commandOf(call); {
		case k == nil:
			k = source(c)
		case k.how == byName && k.name == "":
			k.name = pattern(c)
		}
		return true
	})
	return k
}

// source says which processes a command lists.
func source(c *command) *kill {
	has := func(flags ...string) bool {
		return slices.ContainsFunc(c.args, func(a string) bool {
			return slices.ContainsFunc(flags, func(f string) bool { return a == f || len(f) > 2 && strings.HasPrefix(a, f) })
		})
	}
	switch c.name {
	case "jobs":
		return &kill{how: byJobs}
	case "pgrep":
		if has("-P", "--parent") {
			return &kill{how: byChild}
		}
		if has("-g", "--pgroup", "-s", "--session", "-F", "--pidfile") {
			return &kill{how: byPID}
		}
		return &kill{how: byName, name: last(c.args), lines: has("-f", "--full", "-lf", "-fl", "-xf", "-fx")}
	case "pidof":
		return &kill{how: byName, name: last(c.args)}
	case "ps":
		if has("-p", "--pid", "p") || slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "-p") }) {
			return nil
		}
		if has("--ppid") {
			return &kill{how: byChild}
		}
		return &kill{how: byName, lines: true}
	case "lsof", "fuser", "netstat", "ss":
		return &kill{how: byName, port: true, name: last(c.args)}
	}
	return nil
}

// pattern is what grep looks for in a list.
func pattern(c *command) string {
	if c.name != "grep" && c.name != "egrep" && c.name != "fgrep" || slices.Contains(c.args, "-v") {
		return ""
	}
	for _, a := range c.args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}

// pipedKill sees `LIST | xargs kill`, `LIST | awk '… kill …' | sh` and
// `LIST | while read p; do kill $p; done`.
func pipedKill(c *syntax.BinaryCmd) *kill {
	kills, signal := false, ""
	walk(c.Y, func(n syntax.Node) bool {
		call, ok := n.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		cmd := commandOf(call)
		i := slices.Index(cmd.args, "kill")
		switch cmd.name {
		case "xargs":
			if i >= 0 {
				kills = true
				signal = strings.TrimPrefix(strings.TrimPrefix(cmd.arg(i+1), "-"), "SIG")
			}
		case "awk", "gawk", "mawk", "perl":
			kills = kills || slices.ContainsFunc(cmd.args, func(a string) bool { return strings.Contains(a, "kill") && strings.Contains(a, "system") })
		case "sh", "bash":
			kills = kills || len(cmd.args) == 0 && strings.Contains(wordsOf(c.X), "kill")
		case "kill":
			k := plainKill(cmd)
			kills = kills || k != nil && k.how == byPID && k.signal != "0"
		}
		return true
	})
	if !kills {
		return nil
	}
	k := sourceOf(c.X)
	if k == nil {
		k = &kill{how: byPID, what: []string{"…"}, vars: []string{"…"}}
	}
	k.signal = signal
	return k
}

// wordsOf is all text of the commands in a node.
func wordsOf(n syntax.Node) string {
	var b strings.Builder
	walk(n, func(n syntax.Node) bool {
		if w, ok := n.(*syntax.Word); ok {
			b.WriteString(text(w) + " ")
		}
		return true
	})
	return b.String()
}
