package pgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

func TestA19DeathBySignalIsNoCode(t *testing.T) {
	for name, x := range map[string]struct {
		script string
		want   platform.Exit
	}{
		"exit 0":     {"exit 0", platform.Exit{}},
		"exit 143":   {"exit 143", platform.Exit{Code: 143}},
		"exit 255":   {"exit 255", platform.Exit{Code: 255}},
		"TERM":       {"kill -TERM $$", platform.Exit{Code: -1, Signal: syscall.SIGTERM}},
		"KILL":       {"kill -KILL $$", platform.Exit{Code: -1, Signal: syscall.SIGKILL}},
		"PIPE":       {"kill -PIPE $$", platform.Exit{Code: -1, Signal: syscall.SIGPIPE}},
		"real time":  {"kill -40 $$", platform.Exit{Code: -1, Signal: 40}},
		"SEGV":       {"ulimit -c 0; kill -SEGV $$", platform.Exit{Code: -1, Signal: syscall.SIGSEGV}},
		"SEGV, core": {"ulimit -c unlimited; kill -SEGV $$", platform.Exit{Code: -1, Signal: syscall.SIGSEGV, CoreDumped: true}},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			p := launch(t, mode{level: Grp}.config(t), Command{Path: "/bin/sh", Args: []string{"sh", "-c", x.script}, Dir: t.TempDir()})
			peeked, at := p.Exit()
			if at.Before(p.Started()) {
				t.Errorf("ended at %v, started at %v", at, p.Started())
			}
			end := p.reap()
			if peeked != end.Exit {
				t.Errorf("peeked %+v, reaped %+v", peeked, end.Exit)
			}
			if x.want.CoreDumped && !end.CoreDumped {
				t.Skip("no core can be dumped here")
			}
			if end.Exit != x.want {
				t.Errorf("ended by %+v, want %+v", end.Exit, x.want)
			}
		})
	}
}

func TestS2_15GroupAndSession(t *testing.T) {
	clean(t)
	own, _ := unix.Getsid(0)
	for session, want := range map[bool]func(pid int) int{true: func(pid int) int { return pid }, false: func(int) int { return own }} {
		p := launch(t, mode{level: Grp}.config(t), Command{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Session: session})
		st, err := platform.ReadStat(p.PID())
		if err != nil || st.PGID != p.PID() || st.SID != want(p.PID()) {
			t.Errorf("session %v: pid %d group %d session %d, %v", session, p.PID(), st.PGID, st.SID, err)
		}
		p.Stop(long, nil)
		p.reap()
	}
}

func TestIdentityIsPinnedUntilReap(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := sh(t, m, `exit 4`)
		<-p.Done()
		st, err := platform.ReadStat(p.PID())
		if err != nil || st.State != 'Z' {
			t.Fatalf("the leader is no zombie: %+v, %v", st, err)
		}
		id, err := p.Identity()
		if err != nil || id.PID != p.PID() || id.StartTicks != st.StartTicks || id.BootID == "" {
			t.Errorf("identity %+v, %v; stat says %d", id, err, st.StartTicks)
		}
		if id.Liveness() != platform.Exited {
			t.Error("a zombie is alive")
		}
		p.reap()
		if again, err := p.Identity(); again != id || err != nil {
			t.Errorf("after Reap: %+v, %v", again, err)
		}
		for what, err := range map[string]error{"Signal": p.Signal(0), "SignalLeader": p.SignalLeader(0)} {
			if !errors.Is(err, ErrReaped) {
				t.Errorf("%s after Reap: %v", what, err)
			}
		}
		if _, err := p.Reap(); !errors.Is(err, ErrReaped) {
			t.Errorf("second Reap: %v", err)
		}
		r := p.Stop(Ladder{}, nil)
		wantNone(t, "survivors of a reaped command", r.Survivors)
	})
	t.Run("not asked before", func(t *testing.T) {
		clean(t)
		p := sh(t, plain, `exit 0`)
		p.reap()
		if id, err := p.Identity(); !errors.Is(err, ErrReaped) {
			t.Errorf("%+v, %v", id, err)
		}
	})
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, perm os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), perm); err != nil {
			t.Fatal(err)
		}
		return file
	}
	plainFile := write("plain", "#!/bin/sh\n", 0o644)
	noFormat := write("format", "\x01\x02", 0o755)
	noInterpreter := write("interpreter", "#!/no/such\n", 0o755)
	closed, _ := os.Open(plainFile)
	closed.Close()
	in(t, []mode{caged, cagedTree, tree, plain, {"auto", Auto, true, true}}, func(t *testing.T, m mode) {
		for name, x := range map[string]struct {
			c    Command
			step string
			want error
		}{
			"missing file":     {Command{Path: "/no/such"}, "exec", unix.ENOENT},
			"directory":        {Command{Path: dir}, "exec", unix.EACCES},
			"no permission":    {Command{Path: plainFile}, "exec", unix.EACCES},
			"no format":        {Command{Path: noFormat}, "exec", unix.ENOEXEC},
			"no interpreter":   {Command{Path: noInterpreter}, "exec", unix.ENOENT},
			"missing dir":      {Command{Path: "/bin/true", Dir: "/no/such"}, "chdir", unix.ENOENT},
			"dir is a file":    {Command{Path: "/bin/true", Dir: plainFile}, "chdir", unix.ENOTDIR},
			"closed stdin":     {Command{Path: "/bin/true", Stdin: closed}, "stdin", unix.EBADF},
			"too many argumen": {Command{Path: "/bin/true", Env: []string{"X=" + strings.Repeat("x", 1<<20)}}, "exec", unix.E2BIG},
		} {
			x.c.Args = []string{"x"}
			g, err := Start(x.c, m.config(t))
			var start *StartError
			if g != nil || !errors.As(err, &start) || start.Step != x.step || !errors.Is(err, x.want) {
				t.Errorf("%s: %v, %v; want step %s, %v", name, g, err, x.step, x.want)
			}
		}
	})
}

func TestTreeNeedsSubreaper(t *testing.T) {
	clean(t)
	if _, err := Start(Command{Path: "/bin/true", Args: []string{"true"}}, Config{Containment: Tree}); err == nil {
		t.Error("started")
	}
}

func TestZeroConfig(t *testing.T) {
	clean(t)
	p := launch(t, Config{}, Command{Path: "/bin/cat", Args: []string{"cat", "/proc/self/environ"}})
	if p.Containment() == Cgroup {
		if name := filepath.Base(p.CgroupPath()); !strings.HasPrefix(name, fmt.Sprintf("procsup-p%d-", os.Getpid())) {
			t.Errorf("cgroup %q", name)
		}
	} else if h, err := platform.FindCgroup(); err == nil && h.Writable {
		t.Errorf("level %q although a cgroup can be made", p.Containment())
	}
	p.reap()
}

func TestEnvironment(t *testing.T) {
	for name, x := range map[string]struct {
		env   []string
		token string
		want  string
	}{
		"empty":          {[]string{}, "", ""},
		"token alone":    {[]string{}, "a/b", "PROCSUP_RUN=a/b\x00"},
		"token replaced": {[]string{"PROCSUP_RUN=a", "PROCSUP_RUNNER=x", "PROCSUP_RUN=b"}, "a/c", "PROCSUP_RUNNER=x\x00PROCSUP_RUN=a/c\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			clean(t)
			given := append([]string{}, x.env...)
			p := launch(t, Config{Containment: Grp, Token: x.token}, Command{Path: "/bin/cat", Args: []string{"cat", "/proc/self/environ"}, Env: x.env})
			got, _ := p.out.ReadString('\n')
			if got != x.want {
				t.Errorf("environment %q, want %q", got, x.want)
			}
			if fmt.Sprint(given) != fmt.Sprint(x.env) {
				t.Errorf("the caller's slice became %q", x.env)
			}
			p.Stop(long, nil)
			if _, err := p.Reap(); err != nil {
				t.Error(err)
			}
			p.reaped = true
		})
	}
}

func TestCgroupNameTaken(t *testing.T) {
	needCgroup(t)
	clean(t)
	name := mark(t)
	other, err := platform.NewCgroup(name)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Remove()
	c := Command{Path: "/bin/sleep", Args: []string{"sleep", "1000"}}
	_, err = Start(c, Config{Containment: Cgroup, Token: "x/" + name})
	var start *StartError
	if !errors.As(err, &start) || start.Step != "cgroup" || !errors.Is(err, unix.EEXIST) {
		t.Errorf("explicit: %v, want EEXIST", err)
	}
	p := launch(t, Config{Token: "x/" + name}, c)
	if p.Containment() != Grp || p.CgroupPath() != "" {
		t.Errorf("auto: %q in %q, want group", p.Containment(), p.CgroupPath())
	}
	r := p.Stop(long, nil)
	wantSent(t, r, "TERM group")
	p.reap()
}

// A host program that waits for any child takes the leader from us: then
// nothing may be sent to its number, and a code is not invented.
func TestLeaderReapedByHost(t *testing.T) {
	in(t, []mode{caged, tree, shared, plain}, func(t *testing.T, m mode) {
		p := sh(t, m, `sleep 1000 & echo child $!; exit 6`)
		child := p.number("child")
		if _, err := unix.Wait4(p.PID(), nil, 0, nil); err != nil {
			t.Fatal(err)
		}
		exit, _ := p.Exit()
		r := p.Stop(long, nil)
		wantNone(t, "survivors", r.Survivors)
		if alive(child) {
			t.Error("child lives")
		}
		end, err := p.Reap()
		p.reaped = true
		if exit.Code == -1 { // Linux before 6.15 does not tell
			if !errors.Is(err, unix.ECHILD) {
				t.Errorf("unknown exit and %v", err)
			}
		} else if err != nil || exit.Code != 6 || end.Exit != exit {
			t.Errorf("exit %+v, reaped %+v, %v", exit, end.Exit, err)
		}
	})
}
