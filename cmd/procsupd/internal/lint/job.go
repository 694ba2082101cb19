package lint

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A job is a command in the background: of the shell's by &, or a handle of
// procsup's.
type job struct {
	stmt     *syntax.Stmt
	start    *event
	within   *job
	handle   string // "procsup" for procsup start
	named    string // its --name
	name     string // for people: "npm run start"
	vars     []string
	commands []*command // the simple commands in it
	main     *command   // the one that the job is named after
	pidFile  bool       // its pid was written somewhere
	watched  bool       // kill -0 asks for it
	finite   bool       // ends by itself soon
	leader   string
	daemon   string // the command in it that detaches itself
}

func (j *job) has(vars []string) bool {
	return slices.ContainsFunc(vars, func(v string) bool { return slices.Contains(j.vars, v) })
}

// says reports whether a name occurs in the words of the job.
func (j *job) says(name string) bool {
	for _, c := range j.commands {
		if strings.Contains(c.name, name) || slices.ContainsFunc(c.args, func(a string) bool { return strings.Contains(a, name) }) {
			return true
		}
	}
	return false
}

// brief are commands that end by themselves and soon.
var brief = strings.Fields(`: [ [[ test true false echo printf cat rm mv cp mkdir rmdir touch ln chmod chown chgrp kill pkill killall date grep
	egrep fgrep sed awk cut head tail sort uniq wc tr tee ls find basename dirname readlink realpath xargs tar gzip gunzip bzip2 xz zcat sync
	logger notify-send stty tput clear set unset export local readonly declare cd pwd read wait exit return break continue trap shift umask id
	uname hostname sha256sum sha1sum md5sum cmp diff mktemp install stat du df expr seq mkfifo jobs disown sleep usleep procsup run-parts let
	type which command pgrep pidof ps uptime who users groups tty nproc getent dd gpg-connect-agent xset xsetroot xmodmap xrdb setxkbmap`)

// endless reports whether a brief command goes on for ever after all.
func endless(c *command) bool {
	switch c.name {
	case "sleep":
		return strings.HasPrefix(c.arg(0), "inf")
	case "tail":
		return slices.ContainsFunc(c.args, func(a string) bool {
			return a == "--follow" || strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "--") && strings.ContainsAny(a, "fF")
		}) && !slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--pid") })
	}
	return false
}

func short(c *command) bool {
	if c.has("timeout") || c.has("procsup run") && slices.ContainsFunc(c.call.Args, func(w *syntax.Word) bool { return strings.HasPrefix(text(w), "--deadline") }) {
		return true
	}
	bound := slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--pid=") && c.name == "tail" })
	return bound || slices.Contains(brief, c.name) && !endless(c)
}

// briefShell looks into sh -c 'sleep 1; rm file'.
func briefShell(c *command) bool {
	if c.name != "sh" && c.name != "bash" || c.arg(0) != "-c" || len(c.word) < 3 {
		return false
	}
	f, err := syntax.NewParser().Parse(strings.NewReader(text(c.word[2])), "")
	if err != nil || len(f.Stmts) == 0 {
		return false
	}
	all := !endlessLoop(f)
	walk(f, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			all = all && short(commandOf(call))
		}
		return all
	})
	return all
}

// describe looks into a job.
func (s *script) describe(j *job) {
	s.collect(j, j.stmt, 0)
	j.finite = !endlessLoop(j.stmt)
	var long []*command
	for _, c := range j.commands {
		if !short(c) && !briefShell(c) {
			long = append(long, c)
			j.finite = false
		}
		if name := detaches(c); name != "" {
			j.daemon = name
		}
	}
	j.name = s.title(j, long)
	if len(long) > 0 {
		j.leader = s.leaderOnly(j, long)
	}
}

func (s *script) describeHandle(j *job, args []*syntax.Word) {
	if n := toCommand(append([]*syntax.Word{nil}, args...)); n-1 < len(args) && n > 0 {
		j.commands = []*command{commandOf(&syntax.CallExpr{Args: args[n-1:]})}
	}
	j.name = s.title(j, j.commands)
}

// collect finds the simple commands of a job, also in functions it calls.
func (s *script) collect(j *job, n syntax.Node, depth int) {
	walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst, *syntax.FuncDecl:
			return false
		case *syntax.Stmt:
			return n == j.stmt || !n.Background // a job of its own
		case *syntax.CallExpr:
			if len(n.Args) == 0 || len(j.commands) > 500 {
				return false
			}
			c := commandOf(n)
			if body, ok := s.funcs[c.name]; ok && depth < 5 {
				s.collect(j, body, depth+1)
				return false
			}
			j.commands = append(j.commands, c)
			return false
		}
		return true
	})
}

func endlessLoop(n syntax.Node) (endless bool) {
	walk(n, func(n syntax.Node) bool {
		if w, ok := n.(*syntax.WhileClause); ok && always(w) && !leaves(w.Do) {
			endless = true
		}
		return true
	})
	return endless
}

// always reports whether a loop has no condition of its own.
func always(w *syntax.WhileClause) bool {
	if len(w.Cond) != 1 {
		return false
	}
	switch c := w.Cond[0].Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Args) == 0 {
			return false
		}
		name := text(c.Args[0])
		one := (name == "[" || name == "test") && len(c.Args) > 1 && text(c.Args[1]) == "1"
		return !w.Until && (name == "true" || name == ":" || one) || w.Until && name == "false"
	case *syntax.ArithmCmd:
		x, ok := c.X.(*syntax.Word)
		return ok && !w.Until && text(x) == "1"
	}
	return false
}

func leaves(list []*syntax.Stmt) (out bool) {
	for _, st := range list {
		walk(st, func(n syntax.Node) bool {
			if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
				switch text(c.Args[0]) {
				case "break", "exit", "return":
					out = true
				}
			}
			return true
		})
	}
	return out
}

// title is what a job is called: the long command that goes on in it.
func (s *script) title(j *job, long []*command) string {
	list := long
	if len(list) == 0 {
		list = j.commands
	}
	if len(list) == 0 {
		return "a compound command"
	}
	j.main = list[len(list)-1]
	if s.shape(j.stmt.Cmd) == "pipeline" {
		j.main = list[0]
	}
	words := append([]string{j.main.name}, j.main.args...)
	t := strings.Join(strings.Fields(strings.Join(words, " ")), " ")
	if r := []rune(t); len(r) > 40 {
		t = string(r[:39]) + "…"
	}
	return t
}

// program is the same for several starts of one program.
func (j *job) program() string {
	if j.main == nil {
		return j.name
	}
	return j.main.name + " " + j.main.arg(0)
}

// launchers start the real command as a child and do not pass signals on.
var launchers = []string{"npm", "npx", "yarn", "pnpm", "xvfb-run"}

// leaderOnly says why a signal to the pid of the job does not reach what runs
// in it; "" when it does.
func (s *script) leaderOnly(j *job, long []*command) string {
	if j.daemon != "" {
		return j.daemon + " detaches itself, so the pid that the shell knows is gone"
	}
	last := long[len(long)-1]
	if last.has("procsup run") {
		return ""
	}
	launcher := last.name
	if launcher == "go" && last.arg(0) == "run" {
		launcher = "go run"
	}
	if slices.Contains(launchers, launcher) || launcher == "go run" {
		return launcher + " runs it as a child, which a signal to the pid of " + launcher + " does not reach"
	}
	switch s.shape(j.stmt.Cmd) {
	case "pipeline":
		if !fed(j.stmt) && !slices.Contains(brief, long[0].name) && long[0] != j.commands[len(j.commands)-1] {
			return "$! is the last command of the pipeline, not " + long[0].name
		}
	case "compound":
		if !last.has("exec") {
			return "$! is a subshell, and " + last.name + ", its child, lives on when that is killed"
		}
	}
	return ""
}

// fed reports whether a pipeline reads a file or a fifo: it ends when that does.
func fed(st *syntax.Stmt) bool {
	if b, ok := st.Cmd.(*syntax.BinaryCmd); ok {
		return fed(b.X)
	}
	return slices.ContainsFunc(st.Redirs, func(r *syntax.Redirect) bool { return r.Op == syntax.RdrIn })
}

// shape tells what kind of process $! is.
func (s *script) shape(c syntax.Command) string {
	if loops(c) {
		return "loop" // the subshell ends, and what it does at the moment ends soon
	}
	switch c := c.(type) {
	case *syntax.BinaryCmd:
		if c.Op == syntax.Pipe || c.Op == syntax.PipeAll {
			return "pipeline"
		}
	case *syntax.CallExpr:
		if len(c.Args) > 0 {
			if _, ok := s.funcs[commandOf(c).name]; ok {
				return "compound"
			}
		}
		return "simple"
	case *syntax.TimeClause:
		if c.Stmt != nil {
			return s.shape(c.Stmt.Cmd)
		}
	}
	return "compound"
}

func loops(c syntax.Command) (does bool) {
	walk(c, func(n syntax.Node) bool {
		switch n.(type) {
		case *syntax.WhileClause, *syntax.ForClause:
			does = true
		case *syntax.CmdSubst, *syntax.FuncDecl:
			return false
		}
		return !does
	})
	return does
}

// daemons go to the background by themselves unless one of the words says not
// to. nginx(8), sshd(8), smbd(8), php-fpm(8), dnsmasq(8), crond(8), …
var daemons = map[string]*regexp.Regexp{
	"nginx": regexp.MustCompile(`daemon off|-t\b|-v|-s\b`), "sshd": regexp.MustCompile(`-D|-d|-t|-T|-i`), "smbd": regexp.MustCompile(`-F|--foreground|-i`),
	"nmbd": regexp.MustCompile(`-F|--foreground|-i`), "winbindd": regexp.MustCompile(`-F|--foreground|-i`), "php-fpm": regexp.MustCompile(`-F|--nodaemonize|-t`),
	"dnsmasq": regexp.MustCompile(`-k|--keep-in-foreground|-d|--no-daemon|--test`), "crond": regexp.MustCompile(`-f|-n|-s`), "cron": regexp.MustCompile(`-f`),
	"named": regexp.MustCompile(`-f|-g`), "slapd": regexp.MustCompile(`-d`), "rsyslogd": regexp.MustCompile(`-n|-N`), "squid": regexp.MustCompile(`-N|--foreground|-k`),
	"proftpd": regexp.MustCompile(`-n|--nodaemon`), "xinetd": regexp.MustCompile(`-dontfork|-d`), "apachectl": regexp.MustCompile(`FOREGROUND|stop|-t|-k`),
	"apache2ctl": regexp.MustCompile(`FOREGROUND|stop|-t|-k`), "pg_ctl": regexp.MustCompile(`stop|status|reload|promote|initdb`),
}

var detachFlag = regexp.MustCompile(`^(--daemoni[sz]e|--daemon|--fork|--detach)(=yes|=true)?$`)

// detaches names a command that goes to the background by itself.
func detaches(c *command) string {
	if stay, ok := daemons[c.name]; ok && !stay.MatchString(strings.Join(c.args, " ")) {
		return c.name
	}
	for i, a := range c.args {
		if detachFlag.MatchString(a) && c.arg(i+1) != "no" {
			return path.Base(c.name)
		}
	}
	return ""
}
