//go:build linux

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A screen is a shell inside tmux: what a person at a terminal sees.
type screen struct {
	t    *testing.T
	sock string
	dir  string
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	need(t, "tmux", "bash")
	short, err := os.MkdirTemp("", "s") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, sock: filepath.Join(short, "t"), dir: t.TempDir()}
	mark := fmt.Sprintf("PROCSUP_TEST_MARK=%d.s%d.", os.Getpid(), scripts.Add(1))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen:\n%s", s.shot())
		}
		s.tmux("kill-server")
		if left := leftBehind(mark, 5*time.Second); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		os.RemoveAll(short)
	})
	cmd := exec.Command("tmux", "-S", s.sock, "-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "exec env 'PS1=> ' bash --norc --noprofile")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), mark, "SHELL=/bin/sh", // else tmux takes the login shell, and nobody has none
		"TERM=screen", "LESS=", "PAGER=", "HISTFILE=", "EXINIT=", "LC_ALL=C.UTF-8")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v\n%s", err, out)
	}
	s.see(`(?m)^>`)
	return s
}

func (s *screen) tmux(args ...string) string {
	out, _ := exec.Command("tmux", append([]string{"-S", s.sock}, args...)...).CombinedOutput()
	return string(out)
}

func (s *screen) shot() string { return s.tmux("capture-pane", "-p") }

// see waits until the screen matches. tmux tells nobody when a screen has
// changed, so it is looked at again and again.
func (s *screen) see(pattern string) {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	var shot string
	for end := time.Now().Add(patience / 2); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if shot = s.shot(); re.MatchString(shot) {
			return
		}
	}
	s.t.Fatalf("the screen does not show %q:\n%s", pattern, shot)
}

func (s *screen) keys(keys ...string) { s.tmux(append([]string{"send-keys"}, keys...)...) }

func (s *screen) line(text string) { s.tmux("send-keys", "-l", text); s.keys("Enter") }

// start runs a command line; ended waits until it is over, since programs
// throw away what was typed ahead.
func (s *screen) start(command string) { s.line("clear; " + command + "; echo ended with $?") }

// ended checks the exit code and that the terminal works again.
func (s *screen) ended(code string) {
	s.t.Helper()
	s.see(`(?m)^ended with ` + code + `$`)
	s.line("clear; echo back $((40+2))")
	s.see(`(?m)^back 42$`)
}

// stopAndForeground presses ^Z, looks at the shell, and goes back.
func (s *screen) stopAndForeground(seen string) {
	s.t.Helper()
	s.keys("C-z")
	s.see(`Stopped`)
	s.see(`(?m)^ended with 148$`)
	s.start("fg")
	s.see(seen)
}

// The programs people really run, each at a real screen and driven by keys.
func TestRealPrograms(t *testing.T) {
	t.Parallel()
	for name, drive := range map[string]func(*screen){
		"bash": driveBash, "less": driveLess, "pipelines": drivePipelines, "vim": driveVim, "nano": driveNano, "top": driveTop,
	} {
		t.Run(name, func(t *testing.T) {
			need(t, "bash")
			if name != "pipelines" {
				need(t, name)
			}
			s := newScreen(t)
			drive(s)
		})
	}
}

func driveBash(s *screen) {
	s.start("procsup run -- bash --norc -i")
	s.line("echo in $((20+1))")
	s.see(`(?m)^in 21$`)
	s.line("sh -c 'echo it  sleeps; exec sleep 300'")
	s.see(`(?m)^it sleeps$`)
	s.keys("C-c")
	s.line("echo rc=$?")
	s.see(`rc=130`)
	s.line("exit 5")
	s.ended("5")
}

func driveLess(s *screen) {
	text := strings.Builder{}
	for i := 1; i <= 500; i++ {
		fmt.Fprintf(&text, "line %d\n", i)
	}
	s.write("long", text.String())
	s.start("procsup run -- less long")
	s.see(`line 1\n`)
	s.keys("G")
	s.see(`line 500\n`)
	s.tmux("resize-window", "-x", "80", "-y", "20")
	s.see(`line 490\n:?\s*\z`) // redrawn; a key sent before that may be lost, wrapped or not
	s.keys("g")
	s.see(`line 1\n(.*\n){17}line 19\n:?`)
	s.stopAndForeground(`line 19\n`)
	s.keys("q")
	s.ended("0")
}

func drivePipelines(s *screen) {
	need(s.t, "less", "git")
	s.start("git init -q g && cd g && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first-commit")
	s.ended("0")
	for _, line := range []string{
		"git --no-pager log | procsup run -- less",
		"procsup run -- git --no-pager log | less",
		"procsup run -- git --no-pager log | procsup run -- less",
		"procsup run -- sh -c 'git --no-pager log | less'",
		"GIT_PAGER=less procsup run -- git -p log",
	} {
		s.start(line)
		s.see(`first-commit`)
		s.see(`(?m)^(\(END\)|:)`)
		s.keys("q")
		s.ended("0")
	}
}

func driveVim(s *screen) {
	s.start("procsup run -- vim -u NONE -N made")
	s.see(`"?made"? .*New`)
	s.keys("i")
	s.tmux("send-keys", "-l", "typed text")
	s.see(`typed text`)
	s.keys("Escape")
	s.stopAndForeground(`typed text`)
	s.line(":wq")
	s.ended("0")
	s.start("cat made")
	s.see(`(?m)^typed text$`)
	s.ended("0")
}

func driveNano(s *screen) {
	s.start("procsup run -- nano noted")
	s.see(`GNU nano`)
	s.tmux("send-keys", "-l", "by nano")
	s.see(`by nano`)
	s.keys("C-s")
	s.see(`Wrote 1 line`)
	s.keys("C-x")
	s.ended("0")
	s.start("cat noted")
	s.see(`(?m)^by nano$`)
	s.ended("0")
}

func driveTop(s *screen) {
	for _, key := range []string{"q", "C-c"} {
		s.start("procsup run -- top")
		s.see(`(?i)load average`)
		s.keys(key)
		s.ended(`(0|130)`)
	}
}

func (s *screen) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}
