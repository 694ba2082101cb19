package lint

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Languages are what --lang takes.
var Languages = []string{"sh", "bash", "mksh", "bats", "go"}

// A dialect is how a script is to be parsed.
type dialect struct {
	variant syntax.LangVariant
	errexit bool // its first line says -e
}

// dialectOf goes by lang, the first line, then the name. Anything else is
// bash, which reads nearly all of sh and most of ksh. The error says that the
// file is for another program.
func dialectOf(name string, src []byte, lang string) (dialect, error) {
	line, _, _ := bytes.Cut(src, []byte("\n"))
	var words []string
	if rest, ok := strings.CutPrefix(string(line), "#!"); ok {
		words = strings.Fields(rest)
	}
	if len(words) > 0 && path.Base(words[0]) == "env" {
		words = words[1:]
		for len(words) > 0 && (strings.HasPrefix(words[0], "-") || strings.Contains(words[0], "=")) {
			words = words[1:]
		}
	}
	var d dialect
	for _, w := range words {
		if strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.Contains(w, "e") {
			d.errexit = true
		}
	}
	shell := lang
	if shell == "" && len(words) > 0 {
		shell = path.Base(words[0])
	}
	if shell == "" {
		shell = strings.TrimPrefix(path.Ext(name), ".")
	}
	var ok bool
	if d.variant, ok = variantOf(shell); !ok && (lang != "" || len(words) > 0) {
		return d, fmt.Errorf("this is a file for %q, which is no shell that lint reads (sh, bash, ksh, bats)", shell)
	}
	return d, nil
}

func variantOf(shell string) (v syntax.LangVariant, ok bool) {
	switch shell {
	case "sh", "dash", "ash", "busybox", "posix", "yash", "posh":
		return syntax.LangPOSIX, true
	case "ksh", "mksh", "lksh", "ksh93", "pdksh", "oksh":
		return syntax.LangMirBSDKorn, true
	case "bats":
		return syntax.LangBats, true
	case "zsh":
		return syntax.LangZsh, true
	}
	return syntax.LangBash, shell == "bash" || shell == "rbash"
}

// parse reads a script as what it says it is. What /bin/sh is on one machine
// takes more than POSIX: what does not parse as sh is tried as bash and ksh.
func parse(name string, src []byte, v syntax.LangVariant) (*syntax.File, error) {
	if err := tooDeep(src); err != nil {
		return nil, err
	}
	f, err := syntax.NewParser(syntax.KeepComments(true), syntax.Variant(v)).Parse(bytes.NewReader(src), name)
	if err == nil || v == syntax.LangBats || v == syntax.LangZsh {
		return f, err
	}
	for _, other := range []syntax.LangVariant{syntax.LangBash, syntax.LangMirBSDKorn} {
		if other == v {
			continue
		}
		if f, again := syntax.NewParser(syntax.KeepComments(true), syntax.Variant(other)).Parse(bytes.NewReader(src), name); again == nil {
			return f, nil
		}
	}
	return upToEnd(name, src, v, err)
}

// upToEnd reads a script whose end is for another program: the shell does not
// get behind an exec or exit at the top.
func upToEnd(name string, src []byte, v syntax.LangVariant, err error) (*syntax.File, error) {
	f := &syntax.File{Name: name}
	ends := false
	each := syntax.NewParser(syntax.KeepComments(true), syntax.Variant(v)).StmtsSeq(bytes.NewReader(src))
	each(func(st *syntax.Stmt, err error) bool { // no range: it may call once more after the end, which panics there
		if ends || err != nil || st == nil {
			return false
		}
		f.Stmts = append(f.Stmts, st)
		if call, ok := st.Cmd.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			name := text(call.Args[0])
			ends = name == "exit" || name == "exec" && len(call.Args) > 1
		}
		return !ends
	})
	if !ends {
		return nil, err
	}
	return f, nil
}
