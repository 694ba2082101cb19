package supervisor

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/handles"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// shown waits until the readiness of a run is as wanted.
func shown(t *testing.T, s *Supervisor, id handles.ID, what string, want func(*handles.Readiness) bool) *handles.Record {
	t.Helper()
	limit := time.After(long)
	for {
		r := s.live(id)
		if r == nil {
			t.Fatalf("%s: it has ended", what)
		}
		rec, bell := r.state()
		if want(rec.Readiness) {
			return &rec
		}
		select {
		case <-bell:
		case <-time.After(20 * time.Millisecond): // what is only noted rings no bell
		case <-limit:
			t.Fatalf("%s: %+v", what, rec.Readiness)
		}
	}
}

// speaker is a command that sends what is written to its stdin, a line a call.
const speaker = `while read -r line; do eval "$SELF say $line"; done`

func speak(t *testing.T, s *Supervisor, id handles.ID, words string) {
	t.Helper()
	if _, err := s.Send(t.Context(), string(id), "", []byte(words+"\n"), false); err != nil {
		t.Fatal(err)
	}
}

func startSpeaker(t *testing.T, s *Supervisor, edit func(*wire.Start)) *wire.Started {
	t.Helper()
	req := with(sh(speaker), "notify")
	req.Stdin = "pipe"
	if edit != nil {
		edit(&req)
	}
	return mustStart(t, s, req)
}

// Readiness is a level: it is lost by RELOADING and STOPPING and regained by READY.
func TestNotifyLostAndRegained(t *testing.T) {
	s := open(t, Config{})
	a := startSpeaker(t, s, nil)
	speak(t, s, a.HandleID, `RELOADING=1 STATUS=warming "MAINPID=$$"`) // not ready yet: it cannot be lost
	shown(t, s, a.HandleID, "status", func(v *handles.Readiness) bool { return v.Status == "warming" && v.MainPID == a.PID })
	speak(t, s, a.HandleID, `"$(printf 'READY=1\nSTATUS=up')"`)
	first := mustBeReady(t, s, a.HandleID)
	if first.Readiness.Status != "up" {
		t.Errorf("status %q", first.Readiness.Status)
	}
	for _, lost := range []struct{ say, state string }{{`"$(printf 'RELOADING=1\nMONOTONIC_USEC=12345')"`, handles.ReadyReloading}, {"STOPPING=1", handles.ReadyStopping}} {
		speak(t, s, a.HandleID, lost.say)
		rec := shown(t, s, a.HandleID, lost.state, func(v *handles.Readiness) bool { return v.State == lost.state })
		if !rec.ReadyAt.IsZero() || rec.Readiness.FirstAt != first.ReadyAt {
			t.Errorf("%s: ready at %v, first at %v", lost.state, rec.ReadyAt, rec.Readiness.FirstAt)
		}
		if w, err := s.WaitReady(t.Context(), string(a.HandleID), "", -1); err != nil || w.Status != wire.TimedOut {
			t.Errorf("%s: %+v, %v", lost.state, w, err)
		}
		speak(t, s, a.HandleID, "READY=1")
		if rec := mustBeReady(t, s, a.HandleID); !rec.ReadyAt.After(first.ReadyAt) {
			t.Errorf("ready again at %v, first at %v", rec.ReadyAt, first.ReadyAt)
		}
	}
	var got []string
	for _, k := range strings.Fields(entryKinds(t, s, a.HandleID)) {
		if k != "said" {
			got = append(got, k)
		}
	}
	if g := strings.Join(got, " "); g != "admitted spawned ready not_ready ready not_ready ready" {
		t.Errorf("journal: %s", g)
	}
}

// A barrier is handled after everything before it; READY of a process that ends
// at once counts, as does that of a grandchild in a session of its own.
func TestNotifyFromAnyProcessOfTheTree(t *testing.T) {
	s := open(t, Config{Exclusive: true})
	for name, script := range map[string]string{
		"leader":       `exec "$SELF" say READY=1 barrier`,
		"child":        `"$SELF" say READY=1 barrier; exec sleep 600`,
		"own session":  `setsid "$SELF" say READY=1 barrier; exec sleep 600`,
		"daemon":       `(setsid "$SELF" say READY=1 barrier &) ; exec sleep 600`,
		"no env":       `n=$NOTIFY_SOCKET; (env -i NOTIFY_SOCKET=$n setsid "$SELF" say READY=1 barrier &) ; exec sleep 600`,
		"zombie":       `"$SELF" say READY=1 & exec sleep 600`,
		"of a session": `setsid sh -c '"$SELF" say READY=1 barrier; sleep 600'`,
	} {
		t.Run(name, func(t *testing.T) {
			a := mustStart(t, s, with(sh(script), "notify"))
			if name == "leader" { // it ends when its barrier is handled
				if rec := mustWait(t, s, a.HandleID); rec.Status != handles.Completed || rec.Readiness.FirstAt.IsZero() {
					t.Errorf("%+v", rec.Readiness)
				}
				return
			}
			mustBeReady(t, s, a.HandleID)
		})
	}
}

// A process of another user reaches the socket.
func TestNotifyOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	s := open(t, Config{})
	exe := copyOfSelf(t)
	a := mustStart(t, s, with(sh(`exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '"`+exe+`" say READY=1 barrier; exec sleep 600'`), "notify"))
	mustBeReady(t, s, a.HandleID)
}

// copyOfSelf is the test binary where anybody can execute it.
func copyOfSelf(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "self"), b, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "self")
}

// Datagrams that are malformed, too long, or of a process outside the tree are
// ignored and counted; descriptors to be kept are refused.
func TestNotifyIgnoresAndCounts(t *testing.T) {
	s := open(t, Config{})
	a := startSpeaker(t, s, nil)
	speak(t, s, a.HandleID, `nonsense "" =x "READY" READY=1=1 long MAINPID=abc MAINPID=1 WATCHDOG_USEC=-5 "$(head -c 100 /dev/urandom | tr -d '\0\n')" fds X_OWN=1 barrier; echo done`)
	if w, err := s.WaitOutput(t.Context(), string(a.HandleID), "", wire.WaitOutput{Pattern: "done"}); err != nil || w.Status != wire.Matched {
		t.Fatalf("%+v, %v", w, err)
	}
	name := ""
	for _, kv := range strings.Split(string(readFile(t, "/proc/"+strconv.Itoa(a.PID)+"/environ")), "\x00") {
		if v, ok := strings.CutPrefix(kv, "NOTIFY_SOCKET="); ok {
			name = v
		}
	}
	outside := exec.Command(os.Args[0], "say", "READY=1", "barrier") // of ours, not of the run's
	outside.Env = []string{"NOTIFY_SOCKET=" + name, "GORACE=atexit_sleep_ms=0"}
	if out, err := outside.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	rec := shown(t, s, a.HandleID, "counts", func(v *handles.Readiness) bool { return v.Ignored.Foreign >= 2 })
	// nonsense, "", =x, READY, MAINPID=abc, WATCHDOG_USEC=-5 and the noise; the outsider's READY and its barrier
	if v := rec.Readiness; v.State != handles.ReadyWaiting || v.MainPID != 0 || v.Ignored != (handles.Ignored{Foreign: 2, Malformed: 7, TooLong: 1}) || v.Refused != 2 {
		t.Errorf("%+v", v)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A missed watchdog ends the run: cause deadline, by the host. A ping puts it off.
func TestNotifyWatchdog(t *testing.T) {
	s := open(t, Config{})
	a := startSpeaker(t, s, func(r *wire.Start) { r.WatchdogMS = 3_600_000 })
	speak(t, s, a.HandleID, `"STATUS=$WATCHDOG_USEC" READY=1`)
	rec := mustBeReady(t, s, a.HandleID)
	if rec.Readiness.Status != "3600000000" || rec.Readiness.WatchdogMS != 3_600_000 {
		t.Errorf("%+v", rec.Readiness)
	}
	speak(t, s, a.HandleID, "WATCHDOG=1 WATCHDOG_USEC=20000")
	rec = mustWait(t, s, a.HandleID)
	if rec.Status != handles.Killed || rec.Cause != handles.CauseDeadline || rec.Stop.By != "host" || rec.Stop.Reason != "watchdog: no WATCHDOG=1 for 20ms" {
		t.Errorf("%s %s %+v", rec.Status, rec.Cause, rec.Stop)
	}
	a = startSpeaker(t, s, nil)
	speak(t, s, a.HandleID, "READY=1 WATCHDOG=trigger")
	if rec := mustWait(t, s, a.HandleID); rec.Cause != handles.CauseDeadline || !strings.Contains(rec.Stop.Reason, "trigger") {
		t.Errorf("%s %+v", rec.Cause, rec.Stop)
	}
}

// EXTEND_TIMEOUT_USEC gives a slow start more time.
func TestNotifyExtendsTheTimeout(t *testing.T) {
	s := open(t, Config{})
	ms := int64(5000)
	a := startSpeaker(t, s, func(r *wire.Start) { r.ReadyMS = &ms })
	before, _ := s.live(a.HandleID).state()
	speak(t, s, a.HandleID, "EXTEND_TIMEOUT_USEC=600000000")
	rec := shown(t, s, a.HandleID, "extended", func(v *handles.Readiness) bool { return v.Until.After(before.Readiness.Until) })
	if left := time.Until(rec.Readiness.Until); left < 9*time.Minute {
		t.Errorf("until %v", left)
	}
	speak(t, s, a.HandleID, "EXTEND_TIMEOUT_USEC=1000 barrier") // never less
	speak(t, s, a.HandleID, "READY=1")
	mustBeReady(t, s, a.HandleID)
}

// The notice and the event of it.
func TestReadyIsTold(t *testing.T) {
	s := open(t, Config{})
	a := startSpeaker(t, s, nil)
	speak(t, s, a.HandleID, "READY=1 RELOADING=1 READY=1 barrier && exit")
	mustWait(t, s, a.HandleID)
	var got []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = s.Notices(ctx, "t", 1, func(n wire.Notice) error {
		got = append(got, n.Kind)
		if n.Kind == wire.NoticeFinished {
			cancel()
		}
		return nil
	})
	if g := strings.Join(got, " "); !strings.Contains(g, "handle_ready handle_not_ready handle_ready handle_finished") {
		t.Errorf("notices: %s", g)
	}
}

// The socket's queue holds what no supervisor has read; a barrier waits so long.
func TestNotifyQueueOutlivesNobody(t *testing.T) {
	s := open(t, Config{})
	a := startSpeaker(t, s, nil)
	speak(t, s, a.HandleID, "STATUS=one barrier STATUS=two barrier READY=1")
	rec := mustBeReady(t, s, a.HandleID)
	if rec.Readiness.Status != "two" {
		t.Errorf("%+v", rec.Readiness)
	}
	_ = unix.Kill(a.PID, syscall.SIGKILL)
	mustWait(t, s, a.HandleID)
}

// A datagram is in the socket's queue until what it says is durable: a supervisor
// that dies before leaves it to the next.
func TestNotifyIsTakenOutLast(t *testing.T) {
	var s *Supervisor
	type seen struct {
		pending bool
		kinds   string
	}
	at := make(chan seen, 1)
	s = open(t, Config{Hooks: &Hooks{At: func(point string, id handles.ID) {
		if point == "ready" {
			at <- seen{platform.Pending(s.live(id).ready.notify), entryKinds(t, s, id)}
		}
	}}})
	req := with(sh(`"$SELF" say READY=1; read line; exec "$SELF" say barrier`), "notify")
	req.Stdin = "pipe"
	a := mustStart(t, s, req)
	got := <-at
	if !got.pending || got.kinds != "admitted spawned ready" {
		t.Errorf("when it was durable: %+v", got)
	}
	speak(t, s, a.HandleID, "")
	if rec := mustWait(t, s, a.HandleID); rec.Status != handles.Completed { // the barrier was passed
		t.Errorf("%+v", rec)
	}
}

// What was said just before the exit counts, though nobody had come to read it.
func TestReadyJustBeforeTheExit(t *testing.T) {
	swept := make(chan struct{})
	s := open(t, Config{Hooks: &Hooks{At: func(at string, _ handles.ID) {
		switch at {
		case "swept":
			close(swept)
		case "heard":
			<-swept
		}
	}}})
	a := mustStart(t, s, with(sh(`exec "$SELF" say STATUS=1 STATUS=2 STATUS=3 STATUS=4 STATUS=5 STATUS=6 READY=1`), "notify"))
	rec := mustWait(t, s, a.HandleID)
	if rec.Status != handles.Completed || rec.ReadyAt.IsZero() || rec.Readiness.Status != "6" {
		t.Errorf("%s, ready at %v: %+v", rec.Status, rec.ReadyAt, rec.Readiness)
	}
	w, err := s.WaitReady(t.Context(), string(a.HandleID), "", 0)
	if err != nil || w.Status != wire.Ready && w.Record.ReadyAt.IsZero() {
		t.Errorf("%+v, %v", w, err)
	}
}
