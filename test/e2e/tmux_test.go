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
	cmd.Env = append(os.Environ(), mark, "TERM=screen", "LESS=", "PAGER=", "HISTFILE=", "EXINIT=", "LC_ALL=C.UTF-8")
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

// back checks that the shell has the terminal again, with working modes.
func (s *screen) back() {
	s.t.Helper()
	s.line("clear; echo back $((40+2))")
	s.see(`(?m)^back 42$`)
	s.line("clear")
	s.see(`\A> *\n*\z`)
}

// The programs people really run, each at a real screen and driven by keys.
func TestRealPrograms(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	numbers := strings.Builder{}
	for i := 1; i <= 500; i++ {
		fmt.Fprintf(&numbers, "line %d\n", i)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "long"), []byte(numbers.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("bash", func(t *testing.T) {
		s.line("procsup run -- bash --norc -i")
		s.line("echo in $((20+1))")
		s.see(`(?m)^in 21$`)
		s.line("sh -c 'echo it  sleeps; exec sleep 300'")
		s.see(`(?m)^it sleeps$`)
		s.keys("C-c")
		s.line("echo rc=$?")
		s.see(`rc=130`)
		s.line("exit 0")
		s.back()
	})
	t.Run("less", func(t *testing.T) {
		need(t, "less")
		s.line("procsup run -- less long")
		s.see(`line 1\n`)
		s.keys("G")
		s.see(`line 500\n`)
		s.tmux("resize-window", "-x", "80", "-y", "20")
		s.keys("g")
		s.see(`line 1\n`)
		s.keys("C-z")
		s.see(`Stopped`)
		s.line("fg")
		s.see(`line 1\n`)
		s.keys("q")
		s.back()
	})
	t.Run("pipelines", func(t *testing.T) {
		need(t, "less", "git")
		s.line("git init -q g && cd g && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first-commit && clear")
		s.see(`\A> *\n*\z`)
		for _, line := range []string{
			"git --no-pager log | procsup run -- less",
			"procsup run -- git --no-pager log | less",
			"procsup run -- git --no-pager log | procsup run -- less",
			"procsup run -- sh -c 'git --no-pager log | less'",
			"GIT_PAGER=less procsup run -- git -p log",
		} {
			s.line("clear; " + line)
			s.see(`first-commit`)
			s.see(`(?m)^(\(END\)|:)`)
			s.keys("q")
			s.back()
		}
		s.line("cd ..")
	})
	t.Run("vim", func(t *testing.T) {
		need(t, "vim")
		s.line("procsup run -- vim -u NONE -N made")
		s.see(`"?made"? .*New`)
		s.keys("i")
		s.tmux("send-keys", "-l", "typed text")
		s.keys("Escape")
		s.keys("C-z")
		s.see(`Stopped`)
		s.line("fg")
		s.see(`typed text`)
		s.line(":wq")
		s.back()
		s.line("cat made")
		s.see(`(?m)^typed text$`)
		s.back()
	})
	t.Run("nano", func(t *testing.T) {
		need(t, "nano")
		s.line("procsup run -- nano noted")
		s.see(`GNU nano`)
		s.tmux("send-keys", "-l", "by nano")
		s.keys("C-s", "C-x")
		s.back()
		s.line("cat noted")
		s.see(`(?m)^by nano$`)
		s.back()
	})
	t.Run("top", func(t *testing.T) {
		need(t, "top")
		s.line("procsup run -- top")
		s.see(`(?i)load average`)
		s.keys("q")
		s.back()
		s.line("procsup run -- top")
		s.see(`(?i)load average`)
		s.keys("C-c")
		s.back()
	})
}
