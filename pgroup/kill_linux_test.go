package pgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// G7: all of these would end this very test, or everything.
func TestG7KillGroupRefuses(t *testing.T) {
	for _, pgid := range []int{1, 0, -1, -12345, unix.Getpgrp()} {
		if err := killGroup(pgid, 0); !errors.Is(err, unix.EINVAL) {
			t.Errorf("killGroup(%d): %v, want EINVAL", pgid, err)
		}
	}
	if err := killGroup(1<<22+1, 0); !errors.Is(err, platform.ErrGone) { // above the largest pid_max
		t.Errorf("killGroup of none: %v, want ErrGone", err)
	}
}

func TestG7SignalMemberRefuses(t *testing.T) {
	for _, pid := range []int{1, 0, -1, os.Getpid()} {
		st, _ := platform.ReadStat(pid)
		st.PID = pid
		if err := signalMember(st, 0); !errors.Is(err, unix.EINVAL) {
			t.Errorf("signalMember(%d): %v, want EINVAL", pid, err)
		}
	}
}

// signalMember goes by the start time, not by the number alone.
func TestA8SignalMemberChecksStart(t *testing.T) {
	clean(t)
	p := launch(t, plain.config(t), Command{Path: "/bin/sleep", Args: []string{"sleep", "1000"}})
	st, err := platform.ReadStat(p.PID())
	if err != nil {
		t.Fatal(err)
	}
	other := st
	other.StartTicks--
	if err := signalMember(other, syscall.SIGKILL); !errors.Is(err, platform.ErrGone) {
		t.Errorf("another start: %v, want ErrGone", err)
	}
	if !alive(p.PID()) {
		t.Error("it was hit")
	}
	if err := signalMember(st, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	<-p.Done()
	p.reap()
}

func TestTokenBelow(t *testing.T) {
	for _, x := range []struct {
		v, token string
		want     bool
	}{
		{"a", "a", true}, {"a/b", "a", true}, {"a/b/c", "a/b", true},
		{"ab", "a", false}, {"a", "a/b", false}, {"", "a", false}, {"b/a", "a", false}, {"a/bc", "a/b", false},
	} {
		if got := tokenBelow(x.v, x.token); got != x.want {
			t.Errorf("tokenBelow(%q, %q) = %v", x.v, x.token, got)
		}
	}
}

func TestParseGuard(t *testing.T) {
	good := []string{"77", "true", "15", "2s", "250ms", "123456789", "/sys/fs/cgroup/x y", "outer/inner", "4611686018427387905"}
	r, l, at, err := parseGuard(good)
	want := Remote{PID: 77, Pidfd: guardPidfd, Session: true, Cgroup: "/sys/fs/cgroup/x y", Token: "outer/inner", Mark: 1<<62 | 1}
	if err != nil || r != want || l != (Ladder{syscall.SIGTERM, 2 * time.Second, 250 * time.Millisecond}) || at != 123456789 {
		t.Errorf("%+v %+v %d %v", r, l, at, err)
	}
	bad := map[string][]string{"none": nil, "few": good[:8], "many": append(slices.Clone(good), "x")}
	for i, v := range []string{"1", "", "TERM", "2", "x", "soon"} {
		args := slices.Clone(good)
		args[i] = v
		bad[fmt.Sprint(i, " ", v)] = args
	}
	bad["no pid"] = append([]string{"x"}, good[1:]...)
	bad["negative pid"] = append([]string{"-1"}, good[1:]...)
	delete(bad, "1 ") // session: anything but true is false
	for name, args := range bad {
		if _, _, _, err := parseGuard(args); err == nil || !strings.HasPrefix(err.Error(), "guard: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseLevelAndLeftover(t *testing.T) {
	for s, want := range map[string]Level{"": Auto, "auto": Auto, "cgroup": Cgroup, "tree": Tree, "group": Grp} {
		if got, err := ParseLevel(s); got != want || err != nil {
			t.Errorf("ParseLevel(%q) = %q, %v", s, got, err)
		}
	}
	for s, want := range map[string]Leftover{"": Kill, "kill": Kill, "wait": Wait, "keep": Keep} {
		if got, err := ParseLeftover(s); got != want || err != nil {
			t.Errorf("ParseLeftover(%q) = %q, %v", s, got, err)
		}
	}
	if _, err := ParseLevel("Tree"); err == nil {
		t.Error("ParseLevel takes any case")
	}
	if _, err := ParseLeftover("no"); err == nil {
		t.Error("ParseLeftover takes anything")
	}
}
