package lint

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// text is what a word says: quotes taken off, an expansion as $name, what a
// command prints as $(…).
func text(w *syntax.Word) string {
	if w == nil {
		return ""
	}
	var b strings.Builder
	writeParts(&b, w.Parts)
	return b.String()
}

func writeParts(b *strings.Builder, parts []syntax.WordPart) {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(unescape(p.Value))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			writeParts(b, p.Parts)
		case *syntax.ParamExp:
			b.WriteString("$")
			if p.Param != nil {
				b.WriteString(p.Param.Value)
			}
		case *syntax.CmdSubst:
			b.WriteString("$(…)")
		default:
			b.WriteString("…")
		}
	}
}

func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// dynamic reports whether a word's text is only known when the script runs.
func dynamic(w *syntax.Word) bool {
	return strings.ContainsAny(text(w), "$…")
}

// variables are the names that a node expands, $! included.
func variables(n syntax.Node) (names []string) {
	if isNil(n) {
		return nil
	}
	walk(n, func(n syntax.Node) bool {
		if p, ok := n.(*syntax.ParamExp); ok && p.Param != nil {
			names = append(names, p.Param.Value)
		}
		return true
	})
	return names
}

func isNil(n syntax.Node) bool {
	switch n := n.(type) {
	case nil:
		return true
	case *syntax.Word:
		return n == nil
	case *syntax.Stmt:
		return n == nil
	}
	return false
}

// A command is a simple command with the wrappers in front of it taken off.
type command struct {
	name string   // base name; with a $ in it when only the run tells; "" for a mere assignment
	args []string // texts behind the name
	word []*syntax.Word
	via  []string // nohup, setsid, exec, timeout, …
	call *syntax.CallExpr
}

func (c *command) has(wrapper string) bool {
	for _, v := range c.via {
		if v == wrapper {
			return true
		}
	}
	return false
}

func (c *command) arg(i int) string {
	if i < len(c.args) {
		return c.args[i]
	}
	return ""
}

// wrappers run the command that follows; the value lists their short flags
// that take a value of their own.
var wrappers = map[string]string{
	"command": "", "builtin": "", "exec": "a", "nohup": "", "setsid": "", "time": "fo", "env": "uCS", "nice": "n", "ionice": "cnp",
	"sudo": "ugpCRTDhUrt", "doas": "uC", "stdbuf": "ioe", "timeout": "ks", "chronic": "", "unbuffer": "", "eatmydata": "", "busybox": "",
	"firejail": "", "dbus-run-session": "", "catchsegv": "", "setpriv": "", "chrt": "T", "taskset": "", "gosu": "", "chroot": "", "runuser": "ug",
}

// operand is how many words of its own a wrapper has before the command.
var operand = map[string]int{"timeout": 1, "gosu": 1, "chroot": 1, "chrt": 1, "taskset": 1}

func commandOf(call *syntax.CallExpr) *command {
	c := &command{call: call, word: call.Args}
	for len(c.word) > 0 {
		name := path.Base(text(c.word[0]))
		flags, wraps := wrappers[name]
		skip := 1
		switch {
		case name == "procsup" && len(c.word) > 1 && text(c.word[1]) == "run":
			name, skip = "procsup run", 1+toCommand(c.word[1:])
		case !wraps:
			c.name = name
		default:
			skip += skipFlags(c.word[1:], flags) + operand[name]
		}
		if c.name != "" || skip >= len(c.word) {
			break
		}
		c.via, c.word = append(c.via, name), c.word[skip:]
		for name == "env" && len(c.word) > 1 && strings.Contains(text(c.word[0]), "=") {
			c.word = c.word[1:]
		}
	}
	if len(c.word) > 0 {
		c.name = path.Base(text(c.word[0]))
		for _, w := range c.word[1:] {
			c.args = append(c.args, text(w))
		}
	}
	return c
}

// toCommand is where the command of `procsup VERB [flags] -- CMD` begins.
func toCommand(words []*syntax.Word) int {
	for i, w := range words {
		if text(w) == "--" {
			return i + 1
		}
	}
	return 1 + skipFlags(words[1:], "")
}

func skipFlags(words []*syntax.Word, valued string) (n int) {
	for n < len(words) {
		a := text(words[n])
		if a == "--" {
			return n + 1
		}
		if len(a) < 2 || a[0] != '-' {
			return n
		}
		n++
		if len(a) == 2 && strings.IndexByte(valued, a[1]) >= 0 {
			n++
		}
	}
	return n
}
