package pgroup

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"procsup/platform"
)

// short is a ladder for tests in which the grace is sat out.
var short = Ladder{Grace: 150 * time.Millisecond, Settle: 5 * time.Second}

// long is one for tests in which it must not be.
var long = Ladder{Grace: 8 * time.Second, Settle: 5 * time.Second}

const immune = `trap "" TERM; echo ready; while :; do sleep 1000; done`

func killed(m mode) string {
	if m.level == Cgroup {
		return "KILL cgroup"
	}
	return "KILL group"
}

func TestA2LeaderObeysMemberDoesNot(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := sh(t, m, `sh -c 'trap "" TERM; echo ready; while :; do sleep 1000; done' & exec sleep 1000`)
		p.line("ready")
		begin := time.Now()
		r := p.Stop(short, nil)
		took(t, "stop", time.Since(begin), short.Grace, short.Grace+time.Second)
		wantNone(t, "survivors", r.Survivors)
		wantSent(t, r, "TERM group", killed(m))
		if end := p.reap(); end.Signal != syscall.SIGTERM {
			t.Errorf("leader ended by %+v, want TERM", end.Exit)
		}
	})
}

func TestA3G11EverythingIgnoresTERM(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := sh(t, m, immune)
		p.line("ready")
		begin := time.Now()
		r := p.Stop(short, nil)
		took(t, "stop", time.Since(begin), short.Grace, short.Grace+time.Second)
		wantNone(t, "survivors", r.Survivors)
		wantSent(t, r, "TERM group", killed(m))
		if end := p.reap(); end.Exit != (platform.Exit{Code: -1, Signal: syscall.SIGKILL}) {
			t.Errorf("leader ended by %+v, want KILL", end.Exit)
		}
	})
}

// S2-16, S2-17: with no option given TERM and KILL are 2 s apart.
func TestS2_16DefaultLadder(t *testing.T) {
	in(t, []mode{tree}, func(t *testing.T, m mode) {
		p := sh(t, m, `sh -c 'trap "" TERM; exec sleep 1000' & trap "" TERM; echo ready; while :; do sleep 1000; done`)
		p.line("ready")
		r := p.Stop(Ladder{}, nil)
		wantSent(t, r, "TERM group", "KILL group")
		took(t, "from TERM to KILL", r.Signals[1].At.Sub(r.Signals[0].At), 1800*time.Millisecond, 2200*time.Millisecond)
		wantNone(t, "survivors", r.Survivors)
		p.reap()
	})
}

func TestA4G2ShellDoesNotPassTERMOn(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := sh(t, m, `sleep 1000 & echo child $!; sleep 1000; echo after`)
		child := p.number("child")
		r := p.Stop(long, nil)
		wantSent(t, r, "TERM group")
		wantNone(t, "survivors", r.Survivors)
		if alive(child) {
			t.Error("child lives")
		}
		p.reap()
		if rest, _ := p.out.ReadString(0); rest != "" {
			t.Errorf("the shell went on: %q", rest)
		}
	})
}

func TestA5ChildLeavesBySetsid(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := sh(t, m, `setsid sh -c 'echo away $$; exec sleep 1000' & exec sleep 1000`)
		away := p.number("away")
		if st, err := platform.ReadStat(away); err != nil || st.SID != away {
			t.Fatalf("it is in no session of its own: %+v, %v", st, err)
		}
		r := p.Stop(long, nil)
		wantSent(t, r, "TERM group", "TERM member")
		wantNone(t, "survivors", r.Survivors)
		if alive(away) {
			t.Error("it lives")
		}
		p.reap()
	})
}

// A5 without a token to go by: the child is known because it was seen below the
// leader before that was told to end.
func TestA5ChildWithoutEnvironment(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := sh(t, m, `env -i /usr/bin/setsid /bin/sh -c 'echo away $$; exec /bin/sleep 1000' & exec sleep 1000`)
		away := p.number("away")
		r := p.Stop(long, nil)
		wantSent(t, r, "TERM group", "TERM member")
		if alive(away) {
			t.Error("it lives")
			_ = syscall.Kill(away, syscall.SIGKILL)
		}
		p.reap()
	})
}

// daemonise is perlipc(1)'s way; the environment may be emptied first.
const daemonise = `%s
	exit if fork; POSIX::setsid(); exit if fork;
	print "daemon $$\n";
	open STDIN, "</dev/null"; open STDOUT, ">/dev/null"; open STDERR, ">/dev/null";
	exec "/bin/sleep", "1000"`

func TestA6Daemon(t *testing.T) {
	for name, prelude := range map[string]string{"AsItIs": "", "EmptyEnvironment": "%ENV = ();"} {
		t.Run(name, func(t *testing.T) {
			modes := holdsTree
			if prelude != "" {
				modes = holdsAlone
			}
			in(t, modes, func(t *testing.T, m mode) {
				script := fmt.Sprintf(daemonise, prelude)
				p := perl(t, m, script)
				daemon := p.number("daemon")
				r := p.Finish(Kill, 100*time.Millisecond, long, nil) // its parent may be about to end
				if len(r.Leftovers) != 1 || r.Leftovers[0].PID != daemon {
					st, err := platform.ReadStat(daemon)
					t.Errorf("leftovers %+v, want %d: %+v, %v", r.Leftovers, daemon, st, err)
				}
				wantSent(t, r, "TERM member")
				wantNone(t, "survivors", r.Survivors)
				if alive(daemon) {
					t.Error("it lives")
				}
				if end := p.reap(); end.Exit != (platform.Exit{}) {
					t.Errorf("leader ended by %+v, want exit 0", end.Exit)
				}
			})
		})
	}
}

func TestA11EachKeyIsTheNextStep(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := perl(t, m, `for my $s ("INT", "TERM") { $SIG{$s} = sub { print "$s\n" } } hold(); print "ready\n"; hang()`)
		p.line("ready")
		next := make(chan struct{})
		done := make(chan Report)
		go func() { done <- p.Stop(Ladder{Signal: syscall.SIGINT, Grace: time.Minute}, next) }()
		p.line("INT")
		next <- struct{}{}
		p.line("TERM")
		next <- struct{}{}
		r := <-done
		wantSent(t, r, "INT group", "TERM group", killed(m))
		wantNone(t, "survivors", r.Survivors)
		p.reap()
	})
}

func TestG10TheTrapRuns(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := perl(t, m, `$SIG{TERM} = sub { print "bye\n"; exit 0 }; hold(); print "ready\n"; hang()`)
		p.line("ready")
		r := p.Stop(long, nil)
		p.line("bye")
		wantSent(t, r, "TERM group")
		wantNone(t, "survivors", r.Survivors)
		if end := p.reap(); end.Exit != (platform.Exit{}) {
			t.Errorf("leader ended by %+v, want exit 0", end.Exit)
		}
	})
}

// The members outside of the group get TERM only once the leader is gone.
func TestStopLeaderManagesItsChildrenFirst(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := perl(t, m, `
			hold();
			if (!fork) { POSIX::setsid(); $SIG{TERM} = sub { print "member\n"; exit }; print "up\n"; hang() }
			$SIG{TERM} = sub { print "leader\n"; exit }; print "up\n"; hang()`)
		p.line("up")
		p.line("up")
		r := p.Stop(long, nil)
		p.line("leader")
		p.line("member")
		wantNone(t, "survivors", r.Survivors)
		if got := sentTo(r); got[0] != "TERM group" || slices.Contains(got, killed(m)) {
			t.Errorf("sent %q", got)
		}
		p.reap()
	})
}

func TestStopLeaderIsAZombieAlready(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := sh(t, m, `sleep 1000 & exit 3`)
		<-p.Done()
		r := p.Stop(long, nil)
		wantSent(t, r, "TERM group")
		wantNone(t, "survivors", r.Survivors)
		if end := p.reap(); end.Exit != (platform.Exit{Code: 3}) {
			t.Errorf("leader ended by %+v, want exit 3", end.Exit)
		}
	})
}

func TestStopStoppedMembers(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := sh(t, m, `setsid sh -c 'echo away $$; kill -STOP $$; exec sleep 1000' & exec sleep 1000`)
		away := p.number("away")
		awaitState(t, away, 'T')
		r := p.Stop(long, nil)
		wantSent(t, r, "TERM group", "TERM member")
		wantNone(t, "survivors", r.Survivors)
		p.reap()
	})
}

func awaitState(t *testing.T, pid int, state byte) {
	t.Helper()
	for range 5000 { // the kernel tells only a parent of a stop
		if st, err := platform.ReadStat(pid); err == nil && st.State == state {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("process %d is not in state %c", pid, state)
}

func TestStopLeaderIsStopped(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := sh(t, m, `kill -STOP $$; exec sleep 1000`)
		awaitState(t, p.PID(), 'T')
		r := p.Stop(long, nil)
		wantSent(t, r, "TERM group")
		wantNone(t, "survivors", r.Survivors)
		if end := p.reap(); end.Signal != syscall.SIGTERM {
			t.Errorf("leader ended by %+v, want TERM", end.Exit)
		}
	})
}

// A member that forks another one, in a session of its own, whenever it is
// told to end.
func TestStopMembersForkWhileStopped(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := perl(t, m, `
			sub child {
				hold();
				$SIG{TERM} = sub {
					if (!fork) { POSIX::setsid(); $SIG{TERM} = "DEFAULT"; sigprocmask(SIG_UNBLOCK, POSIX::SigSet->new(SIGTERM)); sleep 1000 }
					exit };
				print "up\n"; hang() }
			if (!fork) { POSIX::setsid(); child() }
			if (!fork) { child() }
			exec "/bin/sleep", "1000"`)
		p.line("up")
		p.line("up")
		r := p.Stop(long, nil)
		wantNone(t, "survivors", r.Survivors)
		if slices.ContainsFunc(r.Signals, func(s Sent) bool { return s.Signal == syscall.SIGKILL }) {
			t.Errorf("KILL was sent: %q", sentTo(r))
		}
		p.reap()
	})
}

// A newcomer that is seen before it has left the group gets its TERM when it has.
func TestStopNewcomerLeavesTheGroup(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := perl(t, m, `
			if (!fork) {
				hold();
				$SIG{TERM} = sub {
					if (!fork) { select(undef, undef, undef, 0.01); POSIX::setsid(); $SIG{TERM} = "DEFAULT"; sigprocmask(SIG_UNBLOCK, POSIX::SigSet->new(SIGTERM)); sleep 1000 }
					exit };
				print "up\n"; hang() }
			exec "/bin/sleep", "1000"`)
		p.line("up")
		r := p.Stop(long, nil)
		wantNone(t, "survivors", r.Survivors)
		if slices.ContainsFunc(r.Signals, func(s Sent) bool { return s.Signal == syscall.SIGKILL }) {
			t.Errorf("KILL was sent: %q", sentTo(r))
		}
		p.reap()
	})
}

// What a member leaves in its session is known by that, with no token and
// among other commands.
func TestStopSessionOfAMember(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := sh(t, m, `env -i /usr/bin/perl -e '`+perlPrelude+`
			setsid(); hold();
			$SIG{TERM} = sub {
				if (!fork) { print "left $$\n"; $SIG{TERM} = "DEFAULT"; sigprocmask(SIG_UNBLOCK, POSIX::SigSet->new(SIGTERM)); sleep 1000 }
				exit };
			print "up\n"; hang()' & exec sleep 1000`)
		p.line("up")
		r := p.Stop(long, nil)
		wantNone(t, "survivors", r.Survivors)
		if left := p.number("left"); alive(left) {
			t.Errorf("process %d lives, sent %q", left, sentTo(r))
			_ = syscall.Kill(left, syscall.SIGKILL)
			await(t, left)
		}
		p.reap()
	})
}

func TestStopForkBomb(t *testing.T) {
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := perl(t, m, `
			$SIG{TERM} = "IGNORE";
			for my $depth (1..6) { fork; POSIX::setsid() }
			print "up\n";
			for (my $n = 0; $n < 5; $n++) { if (!fork) { POSIX::setsid(); $n = 9 } select undef, undef, undef, 0.004 }
			sleep 1000`)
		p.line("up")
		begin := time.Now()
		r := p.Stop(Ladder{Grace: -1, Settle: 10 * time.Second}, nil)
		took(t, "stop", time.Since(begin), 0, 5*time.Second)
		wantNone(t, "survivors", r.Survivors)
		p.reap()
	})
}

// Who was killed and had no processor to die on when Settle was over is no
// survivor.
func TestStopStarved(t *testing.T) {
	in(t, allModes, func(t *testing.T, m mode) {
		p := perl(t, m, `for (1..20) { if (!fork) { print "up\n"; hang() } } print "up\n"; hang()`)
		for range 21 {
			p.line("up")
		}
		r := p.Stop(Ladder{Grace: -1, Settle: time.Nanosecond}, nil)
		wantNone(t, "survivors", r.Survivors)
		p.reap()
	})
}

// More members than one watch holds descriptors for, each in its own session.
func TestStopManyMembers(t *testing.T) {
	const many = maxWatched + 50
	in(t, holdsTree, func(t *testing.T, m mode) {
		p := sh(t, m, fmt.Sprintf(`
			i=0; while [ $i -lt %d ]; do setsid sh -c 'echo up; exec sleep 1000' & i=$((i+1)); done
			exec sleep 1000`, many))
		for range many {
			p.line("up")
		}
		r := p.Stop(long, nil)
		wantNone(t, "survivors", r.Survivors)
		if n := len(r.Signals); n != 1+many {
			t.Errorf("%d signals, want %d", n, 1+many)
		}
		p.reap()
	})
}
