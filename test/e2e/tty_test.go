//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// A13: a command that sets terminal modes is not stopped by SIGTTOU.
func TestA13SetsModes(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine("$P stty sane -echo; echo rc=$?")
		x.expect(`rc=0\r\n`)
		x.shellAnswers()
		// in a pipeline it is not alone in its job
		x.typeLine("true | $P stty sane -echo </dev/tty; echo rc=$?")
		x.expect(`rc=0\r\n`)
		x.shellAnswers()
		// under script, as a shell without job control runs it
		x.typeLine(`script -qfec "$P stty sane; echo rc=\$?" /dev/null </dev/null; echo and we go on`)
		x.expect(`rc=0\r+\n`)
		x.expect(`and we go on\r\n`)
		x.shellAnswers()
	})
}

// A13: the terminal is taken back from a command that is killed.
func TestA13KilledInRawMode(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine(`$P sh -c 'stty raw -echo; kill -9 $$'; echo rc=$?`)
		x.expect(`rc=137`)
		x.typeLine("stty sane -echo")
		x.shellAnswers()
	})
}

// A14: a command that reads the terminal is not stopped by SIGTTIN.
func TestA14ReadsTheTerminal(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine(`$P sh -c 'echo up; read x; echo got:$x'; echo rc=$?`)
		x.expect(`up\r\n`)
		x.typeLine("hello")
		x.expect(`got:hello\r\nrc=0`)
		// in a pipeline, by way of /dev/tty, as password prompts do
		x.typeLine(`echo no | $P sh -c 'echo up; read x </dev/tty; echo got:$x'; echo rc=$?`)
		x.expect(`up\r\n`)
		x.typeLine("secret")
		x.expect(`got:secret\r\nrc=0`)
		// with its output elsewhere
		x.typeLine(`$P sh -c 'read x; echo got:$x' | cat; echo rc=$?`)
		x.typeLine("piped")
		x.expect(`got:piped\r\nrc=0`)
		x.shellAnswers()
	})
}

// G3: an interactive shell as the command takes the terminal; the caller is
// not stopped by that.
func TestG3InteractiveShell(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine("$P bash --norc --noediting -ic true; echo still-here")
		x.expect(`still-here\r\n`)
		x.typeLine("PS1='inner> ' $P bash --norc --noediting -i")
		x.expect(`inner> `)
		x.typeLine(`sh -c 'echo up; exec cat'`) // no shell loop: a fork of dash's cannot be stopped half way
		x.expect(`up\r\n`)
		x.keys("\x1a") // ^Z belongs to the inner shell
		x.expect(`Stopped`)
		x.expect(`inner> `)
		x.typeLine("fg")
		x.typeLine("back in front")
		x.expect(`(?m)^back in front\r\n`)
		x.keys("\x03")
		x.expect(`inner> `)
		x.typeLine("exit 3")
		x.expect(`> $`)
		x.typeLine("echo rc=$?")
		x.expect(`rc=3\r\n`)
		x.typeLine(`script -qec "$P bash --norc --noediting -ic true; echo still-here" /dev/null; echo and we go on`)
		x.expect(`still-here\r+\n`)
		x.expect(`and we go on\r\n`)
		x.shellAnswers()
	})
}

// A11: a key is one signal for the command, not two.
func TestA11OneKeyOneSignal(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.file("count.sh", `trap 'n=$((n+1)); echo INT$n >>log' INT
trap 'echo TERM >>log; exit 0' TERM
n=0; echo up; while ! [ -e end ]; do sleep .05; done; echo end >>log
`)
		x.typeLine("$P sh count.sh; echo rc=$?")
		x.expect(`up\r\n`)
		x.keys("\x03")
		x.await("log", `^INT1$`)
		x.keys("\x03")
		x.await("log", `^(INT2|TERM)$`)
		x.file("end", "")
		x.expect(`rc=`)
		data, err := os.ReadFile(filepath.Join(x.dir, "log"))
		if got := string(data); err != nil || got != "INT1\nINT2\nend\n" && got != "INT1\nTERM\n" {
			t.Errorf("two keys gave %q, %v", got, err)
		}
		x.shellAnswers()
	})
}

// ^C ends a loop of the shell, as it does unwrapped: procsup dies of it.
func TestInterruptEndsTheLoop(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine("for i in 1 2 3 4 5 6 7 8 9; do $P sh -c 'echo round; exec sleep 20'; done; echo not-reached")
		x.expect(`round\r\n`)
		x.keys("\x03")
		x.shellAnswers()
		// in a pipeline the whole job ends
		x.typeLine("$P sh -c 'echo round >&2; exec sleep 20' | cat")
		x.expect(`round\r\n`)
		x.keys("\x03")
		x.shellAnswers()
		// and a script that runs it
		x.file("loop.sh", "for i in 1 2 3; do $P sh -c 'echo round; exec sleep 20'; done; echo not-reached\n")
		x.typeLine("bash loop.sh")
		x.expect(`round\r\n`)
		x.keys("\x03")
		x.shellAnswers()
	})
}

// ^Z stops the job, fg takes it up again where it was.
func TestStopAndForeground(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine(`$P sh -c 'echo up; read x; echo got:$x; read y; echo got:$y'; echo rc=$?`)
		for _, word := range []string{"one", "two"} {
			if word == "one" {
				x.expect(`up\r\n`)
			}
			x.keys("\x1a")
			x.expect(`Stopped`)
			x.shellAnswers()
			x.typeLine("fg")
			x.expect(`sh -c`)
			x.typeLine(word)
			x.expect("got:" + word)
		}
		x.shellAnswers()
	})
}

// A job put into the background reads the terminal: it is stopped as any is,
// and has the terminal after fg.
func TestBackgroundReader(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine("$P head -n 1 &")
		x.expect(`\[1\]`)
		x.typeLine("while ! jobs | grep -q Stopped; do sleep .05; done; echo it stopped")
		x.expect(`it stopped\r\n`)
		x.typeLine("fg")
		x.expect(`head`)
		x.typeLine("a line")
		x.expect(`a line\r\n`)
		x.shellAnswers()
		x.typeLine("$P sleep 600 & kill $!; wait $!; echo rc=$?")
		x.expect(`rc=143`)
	})
}

func TestResize(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine(`$P bash -c 'trap "stty size; exit" WINCH; front() { set -- $(sed "s/.*) //" /proc/$$/stat); [ $6 = $$ ]; }; until front; do :; done; echo up; while :; do sleep .05; done'`)
		x.expect(`up\r\n`)
		if err := pty.Setsize(x.ctl, &pty.Winsize{Rows: 33, Cols: 99}); err != nil {
			t.Fatal(err)
		}
		x.expect(`33 99\r\n`)
		x.shellAnswers()
	})
}

// G9: the terminal is closed: the command goes with it, unless it was asked to
// stay.
func TestTerminalClosed(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		x := newTerm(t, level)
		x.typeLine(`$P sh -c 'sleep 600 & echo $! >pids; echo $$ >>pids; wait'`)
		x.await("pids", `(\d+\n){2}`)
		list := x.pids("pids")
		x.ctl.Close()
		for _, pid := range list {
			if !waitGone(pid, 5*time.Second) {
				t.Errorf("%d (%s) lives on", pid, commandOf(pid))
			}
		}
	})
}

func TestNohup(t *testing.T) {
	levels(t, func(t *testing.T, level string) {
		need(t, "nohup")
		x := newTerm(t, level)
		x.typeLine(`nohup $P sh -c 'echo $PPID >pids; echo $$ >>pids; while ! [ -e go ]; do sleep .02; done; echo end >end' >/dev/null 2>&1 &`)
		x.await("pids", `(\d+\n){2}`)
		list := x.pids("pids")
		x.ctl.Close()
		select {
		case <-x.ended:
		case <-time.After(patience):
			t.Fatal("the shell outlives its terminal")
		}
		for _, pid := range list {
			if !alive(pid) {
				t.Errorf("%d is gone", pid)
			}
		}
		x.file("go", "")
		x.await("end", `end`)
		for _, pid := range list {
			if !waitGone(pid, 5*time.Second) {
				syscall.Kill(pid, syscall.SIGKILL)
				t.Errorf("%d lives on", pid)
			}
		}
	})
}
