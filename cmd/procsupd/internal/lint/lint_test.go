package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// cases are small scripts and the verdicts that are right for them.
var cases = []struct{ name, src, want string }{
	// S2-31: a trap on EXIT ends what was started, however the script is left.
	{"S2-31 handle in a trap", "#!/bin/bash\nset -e\nh=$(procsup start -- server)\ntrap 'procsup cancel \"$h\"' EXIT\nprocsup wait-output \"$h\" ready --timeout 9s\n./tests\n", ""},
	{"S2-31 handle cancelled at the end under set -e", "#!/bin/bash\nset -e\nh=$(procsup start -- server)\n./tests\nprocsup cancel \"$h\"\n", "NOTRAP"},
	{"S2-31 handle and an exit in between", "h=$(procsup start -- server)\n./tests || exit 1\nprocsup cancel $h\n", "NOTRAP"},
	// S2-33: without a trap a cancel or wait that nothing comes before will do.
	{"S2-33 handle cancelled", "h=$(procsup start -- server)\n./tests\nprocsup cancel $h\n", ""},
	{"S2-33 handle waited for", "h=$(procsup start -- build)\nprocsup wait $h\n", ""},
	{"S2-33 handle by its name", "procsup start --name web -- server >/dev/null\n./tests\nprocsup cancel web\n", ""},
	{"S2-33 another name", "procsup start --name web -- server >/dev/null\nh=$(procsup start --name db -- db)\nprocsup cancel db\n", "NOCLEAN"},
	{"S2-33 handle under a condition", "h=$(procsup start -- server)\nif ./tests; then procsup cancel $h; fi\n", "NOTRAP"},
	{"S2-33 handle for ever", "procsup start -- server\n./tests\n", "NOCLEAN"},
	{"S2-33 bound session", "eval \"$(procsup session open --bind-pid $$ --shell)\"\nprocsup start -- server\n./tests\n", ""},
	{"S2-33 a bound session does not end a job", "eval \"$(procsup session open --bind-pid $$ --shell)\"\nserver &\n./work\n", "NOCLEAN"},
	{"session closed in a trap", "trap 'procsup session close' EXIT\nprocsup start -- server\n", ""},
	{"handle kept in a file", "procsup start -- server >server.id\n", ""},
	{"procsup run in a pipeline is no start", "procsup run -- server | head\n", ""},
	{"two handles, one cancelled", "a=$(procsup start -- one)\nb=$(procsup start -- two)\ntrap 'procsup cancel $a' EXIT\n", "NOCLEAN"},
	{"two jobs, one killed", "one & a=$!\ntwo & b=$!\ntrap 'kill $a' EXIT\n./tests\n", "NOCLEAN"},
	{"pids in a list", "one & pids=$!\ntwo & pids=\"$pids $!\"\ntrap 'kill $pids' EXIT\n", ""},
	{"array", "#!/bin/bash\none & pids+=($!)\ntrap 'kill \"${pids[@]}\"' EXIT\n", ""},
	{"trap in double quotes too early", "trap \"kill $pid\" EXIT\nserver &\npid=$!\n./work\n", "WEAKTRAP"},
	{"trap in double quotes in time", "server &\npid=$!\ntrap \"kill $pid\" EXIT\n./work\n", ""},
	{"trap that only tidies up", "trap 'rm -rf $d' EXIT\nserver &\n./run\n", "NOCLEAN"},
	{"trap on TERM with a wait", "server & p=$!\ntrap 'kill $p' TERM\nwait $p\n", ""},
	{"trap on TERM without", "server & p=$!\ntrap 'kill $p' TERM INT\n./run\n", "WEAKTRAP"},
	{"wait in a branch", "server &\nif [ -n \"$1\" ]; then wait; fi\n", "NOTRAP"},
	{"kill only asks", "server & p=$!\nkill -0 $p\n", "NOCLEAN"},
	{"kill -USR1 is no end", "server & p=$!\nkill -USR1 $p\n", "NOCLEAN"},
	{"finite jobs", "sleep 5 &\n(sleep 3; rm -f lock) &\nsh -c 'sleep 1 && touch x' &\ntimeout 9 server &\ntail -f --pid=$$ log &\n", ""},
	{"endless ones", "tail -f log &\nwhile true; do date; sleep 1; done &\nsleep infinity &\n", "NOCLEAN"},
	{"service", "case $1 in start) server & ;; stop) kill $(cat pid) ;; esac\n", ""},
	{"pid file", "server & echo $! >/run/server.pid\n", ""},
	{"branches share a pid", "if a; then one & else two & fi\np=$!\ntrap 'kill $p' EXIT\n", ""},
	{"monitor mode", "set -m\n(cd x && server) &\ntrap 'kill %1' EXIT\n./run\n", ""},
	{"group kill", "trap 'kill 0' EXIT\n(cd x && server) &\n./run\n", ""},
	{"subshell with exec", "(cd x && exec server) & p=$!\ntrap 'kill $p' EXIT\n./run\n", ""},
	{"subshell without", "(cd x && server) & p=$!\ntrap 'kill $p' EXIT\n./run\n", "WEAKTRAP"},
	{"heredoc", "cat <<X\nserver &\nX\n", ""},
	{"&& is no job", "a && b\n", ""},
	{"bats teardown", "#!/usr/bin/env bats\nsetup() { server & pid=$!; }\nteardown() { kill $pid; }\n@test \"x\" { run true; }\n", ""},
	{"a function that calls itself", "f() { server & f; }\nf\n", "NOCLEAN"},
	{"pgrep in a variable", "p=$(pgrep -f server)\nkill $p\n", "BROAD"},
	{"pgrep in a loop", "for p in $(pidof server); do kill -9 $p; done\n", "BROAD"},
	{"pkill of children", "pkill -P $$\npkill -F x.pid\npkill -0 x\n", ""},
	{"a shadowed name", "killall() { kill 0; }\nkillall\n", ""},
	{"reload by name", "killall -HUP syslogd\n", "note:BROAD"},
	{"lsof piped", "lsof -ti :80 | xargs kill -9\n", "BROAD"},
	{"jobs piped is no name", "jobs -p | xargs kill\n", ""},
	{"fuser", "fuser -k 80/tcp\n", "BROAD"},
	{"bounded poll", "n=0\nuntil curl -s u; do n=$((n+1)); [ $n -gt 9 ] && exit 1; sleep 1; done\n", ""},
	{"counted poll", "n=0\nuntil curl -s u; do n=$((n+1)); [ $n -gt 9 ] && break; sleep 1; done\n", ""},
	{"poll that counts what came", "#!/bin/bash\nn=0\nwhile true; do if curl -s u; then n=$((n+1)); fi; [ $n -eq 3 ] && break; sleep 1; done\n", "UNBOUNDED"},
	{"seconds poll", "#!/bin/bash\nuntil curl -s u; do (( SECONDS > 9 )) && exit 1; sleep 1; done\n", ""},
	{"endless poll", "while ! nc -z db 5432; do sleep 1; done\n", "UNBOUNDED"},
	{"endless poll with break", "while :; do pg_isready && break; sleep 1; done\n", "UNBOUNDED"},
	{"poll of /dev/tcp", "#!/bin/bash\nuntil (echo >/dev/tcp/db/5432) 2>/dev/null; do sleep 1; done\n", "UNBOUNDED"},
	{"work for ever", "while true; do curl -s u >out; sleep 60; done\n", ""},
	{"sleep after a service", "systemctl start x\nsleep 3\n", "SLEEP"},
	{"sleep in a loop", "server & p=$!\ntrap 'kill $p' EXIT\nfor i in 1 2 3; do probe; sleep 1; done\n", ""},
	{"sleep after a kill", "server & p=$!\ntrap 'kill $p' EXIT\nkill $p\nsleep 1\nkill -9 $p\n", ""},
}

func TestScripts(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			found := Check("x.sh", []byte(c.src), "")
			if got := strings.Join(verdicts(found), " "); got != c.want {
				t.Errorf("got %q, want %q\n%s%v", got, c.want, c.src, found)
			}
		})
	}
}

// TestOneWarning: S2-33: the bad example gives one warning, with line and
// name, and the line that replaces it.
func TestOneWarning(t *testing.T) {
	found := Check("x.sh", []byte("#!/bin/bash\necho hello\n  MODE=x server --port 80 >log 2>&1 &\n./work\n"), "")
	if len(found) != 1 {
		t.Fatalf("got %v", found)
	}
	f := found[0]
	want := Finding{File: "x.sh", Line: 3, Column: 3, EndLine: 3, Level: Warning, Rule: RuleCleanup, Verdict: NoClean, Name: "server --port 80", Why: f.Why,
		Fix: `h=$(MODE=x procsup start -- server --port 80); trap 'procsup cancel "$h"' EXIT`, runes: 3}
	if f != want || !strings.Contains(f.Why, `"server --port 80"`) {
		t.Errorf("got %+v\nwant %+v", f, want)
	}
	// What it says to write is clean.
	if found := Check("x.sh", []byte("#!/bin/bash\n"+f.Fix+"\n./tests\n"), ""); len(found) != 0 {
		t.Errorf("the fix is found fault with: %v", found)
	}
}

func TestIgnore(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"server & # procsup-lint: ignore long-running-without-cleanup the container ends it\n", ""},
		{"# procsup-lint: ignore long-running-without-cleanup the container ends it\nserver &\n", ""},
		{"{ server\n} & # procsup-lint: ignore long-running-without-cleanup the container ends it\n", ""},
		{"# procsup-lint: ignore kill-by-name not this one\nserver &\n", "NOCLEAN"},
		{"# procsup-lint: ignore long-running-without-cleanup\nserver &\n", "NOCLEAN ignore"},
		{"# procsup-lint: ignore no-such-rule because\ntrue\n", "ignore"},
		{"# procsup-lint: disable\ntrue\n", "ignore"},
		{"echo '# procsup-lint: ignore'\n", ""},
	} {
		if got := strings.Join(verdicts(Check("x.sh", []byte(c.src), "")), " "); got != c.want {
			t.Errorf("got %q, want %q for\n%s", got, c.want, c.src)
		}
	}
}

func TestDialects(t *testing.T) {
	for _, c := range []struct{ name, src, lang, want string }{
		{"x", "#!/bin/sh\na=(1 2)\n", "", ""}, // no POSIX sh, but what many a /bin/sh takes
		{"x", "#!/usr/bin/env -S bash -e\n[[ a == b ]] && server &\n", "", "NOCLEAN"},
		{"x", "#!/bin/mksh\nserver |&\n", "", ""}, // a coprocess ends with its input
		{"x.ksh", "server &\n", "", "NOCLEAN"},
		{"x", "#!/usr/bin/python3\nprint()\n", "", "syntax"},
		{"x", "#!/bin/sh\nexec tclsh \"$0\" \"$@\"\nproc x {} { }}\n", "", ""},
		{"x", "server &\n", "zsh?", "syntax"},
		{"x.sh", "if true; then\n", "", "syntax"},
		{"x.sh", "\x00\x01ELF(((\n", "", "syntax"},
		{"x.go", "package\n", "", "syntax"},
		{"x.txt", "package x\n", "go", ""},
		{"x", "", "", ""},
	} {
		if got := strings.Join(verdicts(Check(c.name, []byte(c.src), c.lang)), " "); got != c.want {
			t.Errorf("got %q, want %q for %q", got, c.want, c.src)
		}
	}
	f := Check("x.sh", []byte("echo\nif true; then\n"), "")[0]
	if f.Line != 2 || f.Column != 10 {
		t.Errorf("the place of the error is %d:%d: %v", f.Line, f.Column, f)
	}
}

func TestOutputs(t *testing.T) {
	found := Check("a dir/é.sh", []byte("echo é; server &\nsleep 5\n"), "")
	r := NewReport(1, found)
	var text, js, sarif bytes.Buffer
	for _, err := range []error{r.WriteText(&text, true), r.WriteJSON(&js), r.WriteSARIF(&sarif, "1.2.3")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := "a dir/é.sh:1:10: warning: " + RuleCleanup + ": "; !strings.HasPrefix(text.String(), want) || strings.Count(text.String(), "    fix: ") != 2 {
		t.Errorf("text:\n%s", &text)
	}
	var back Report
	if err := json.Unmarshal(js.Bytes(), &back); err != nil || back.Warnings != 1 || back.Notes != 1 || len(back.Findings) != 2 {
		t.Errorf("%v\n%s", err, &js)
	}
	var log sarifLog
	dec := json.NewDecoder(&sarif)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	res := run.Results[0]
	at := res.Locations[0].Physical
	if log.Version != "2.1.0" || run.Tool.Driver.Rules[res.RuleIndex].ID != res.RuleID || res.Level != Warning ||
		at.Artifact.URI != "a%20dir/%C3%A9.sh" || at.Region != (sarifRegion{1, 9, 1}) {
		t.Errorf("sarif: %+v", res)
	}
	js.Reset()
	if err := NewReport(0, nil).WriteJSON(&js); err != nil || !strings.Contains(js.String(), `"findings": []`) {
		t.Errorf("empty: %s", &js)
	}
}

func TestTooMuch(t *testing.T) {
	for name, src := range map[string]string{
		"big":    strings.Repeat("# comment\n", maxFile/10+1),
		"parens": strings.Repeat("(", maxParens+1),
		"jobs":   strings.Repeat("server &\n", maxJobs+2),
		"found":  strings.Repeat("pkill x\n", maxFindings+2),
		"calls":  "f0() { true; }\n" + doubling(40) + "f40\n",
	} {
		found := Check("x.sh", []byte(src), "")
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Rule == RuleSyntax }) {
			t.Errorf("%s: nothing says that it is too much: %v", name, found)
		}
	}
}

// Behind a very long line the parser tells no column.
func TestLongLine(t *testing.T) {
	long := strings.Repeat("a=1;", 20_000)
	found := Check("x.sh", []byte(long+"server &\n"), "")
	if len(found) != 1 || found[0].Line != 1 || found[0].Column != len(long)+1 {
		t.Errorf("got %v", found)
	}
	if found := Check("x.sh", []byte(strings.Repeat(long, 6)+"if\n"), ""); len(found) != 1 || found[0].Column < 1 {
		t.Errorf("got %v", found)
	}
}

// doubling are functions that call the one before twice.
func doubling(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "f%d() { f%d; f%d; }\n", i+1, i, i)
	}
	return b.String()
}

func FuzzLint(f *testing.F) {
	for _, c := range cases {
		f.Add([]byte(c.src), false)
	}
	f.Add([]byte("package x\nimport \"procsup/pgroup\"\nfunc f() { g, err := pgroup.Start(); _ = err; g.Stop() }\n"), true)
	f.Fuzz(func(t *testing.T, src []byte, golang bool) {
		name := "x.sh"
		if golang {
			name = "x.go"
		}
		hangs := time.AfterFunc(20*time.Second, func() { panic(fmt.Sprintf("no end of %q", src)) }) // a bound on time is part of the promise
		defer hangs.Stop()
		for _, found := range Check(name, src, "") {
			if found.Line < 1 || found.Column < 1 || found.EndLine < found.Line || found.Why == "" {
				t.Errorf("%+v", found)
			}
		}
	})
}
