package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A newer supervisor says what this keeper does not know, and a broken one
// what nobody does.
func TestNewerSupervisor(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	before := r.fds()
	for _, raw := range []string{
		`{"kind":"future","id":"a","new":[1,{"x":2}]}`,
		`{"kind":"spawned","id":"nobody","pid":5,"start_ticks":6,"new":true}`,
		`{"kind":"ready","since":"now"}`,
		`{"kind":"settled"}`, `not JSON`, `[]`, `{}`,
		`{"kind":"ack","seq":77,"count":1}`, `{"kind":"hello","version":99}`,
		strings.Repeat("x", maxMessage+500),
	} {
		r.do("raw %s", raw)
	}
	r.do("rawfds %s", `{"kind":"future"}`)
	r.do("rawfds %s", `not JSON`)
	r.do("rawfds %s", `{"kind":"settled","id":"a"}`)
	r.logged("first ready")
	if rep := r.try("rawfds %s", `{"kind":"register","id":"a","pipes":5,"seq":99}`); rep.Err != "" {
		t.Error(rep.Err)
	}
	r.do("register a 2") // it was not taken with three of five
	if rep := r.try("register a 2"); !rep.Refused {
		t.Errorf("registered twice: %q", rep.Err)
	}
	if got := r.fds(); got != before+2 {
		t.Errorf("%d descriptors, want %d", got, before+2)
	}
	if rep := r.try("register ../a 1"); rep.Err == "" || rep.Refused {
		t.Errorf("register with a bad id: %q", rep.Err)
	}
	if got := r.kill().run(t, "a"); got.Pipes != 2 {
		t.Errorf("run %+v", got)
	}
}

// A fakeKeeper is the other end of a Link in this process.
type fakeKeeper struct {
	t    *testing.T
	sock int
	recv receiver
}

func newFakeKeeper(t *testing.T) (k *fakeKeeper, theirs int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	k = &fakeKeeper{t: t, sock: pair[0]}
	t.Cleanup(func() { k.die() })
	return k, pair[1]
}

func (k *fakeKeeper) die() {
	if k.sock >= 0 {
		unix.Close(k.sock)
		k.sock = -1
	}
}

func (k *fakeKeeper) say(s string, fds ...int) {
	k.t.Helper()
	if err := sendPacket(k.sock, []byte(s), fds); err != nil {
		k.t.Fatal(err)
	}
}

// hear waits for the next message.
func (k *fakeKeeper) hear() (message, []int) {
	k.t.Helper()
	p := []unix.PollFd{{Fd: int32(k.sock), Events: unix.POLLIN}}
	for until := time.Now().Add(patience); time.Now().Before(until); {
		if n, err := unix.Poll(p, 1000); n > 0 && err == nil {
			m, fds, err := k.recv.packet(k.sock)
			if err != nil {
				k.t.Fatal(err)
			}
			return m, fds
		}
	}
	k.t.Fatal("the supervisor says nothing")
	return message{}, nil
}

// An older keeper leaves fields out; a newer one adds fields and kinds, and
// speaks this protocol with this supervisor.
func TestOtherKeepers(t *testing.T) {
	for name, hello := range map[string]string{
		"older": `{"kind":"hello","version":1,"generation":4,"keeper_pid":77}`,
		"newer": `{"kind":"hello","version":9,"oldest":1,"generation":4,"keeper_pid":77,"new":{"a":1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			k, theirs := newFakeKeeper(t)
			null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(null)
			before := openFDs()
			k.say(hello)
			k.say(`{"kind":"future","new":1}`, null)
			k.say(`{"kind":"runs","seq":5,"runs":[{"id":"a","pipes":1,"new":[]},{"id":"b","pipes":0,"pid":8,"start_ticks":9,"exit":{"id":"b","code":2,"order":3,"at_ns":1,"new":1}}]}`, null)
			k.say(`{"kind":"shutdown","deadline_ms":5000}`)
			k.say(`{"kind":"end","new":""}`)
			l, h, err := Connect(theirs)
			if err != nil {
				t.Fatal(err)
			}
			if h.Version != 1 || h.Generation != 4 || h.KeeperPID != 77 || len(h.Runs) != 2 || len(h.Runs[0].Pipes) != 1 ||
				h.Runs[1].StartTicks != 9 || h.Runs[1].Exit == nil || h.Runs[1].Exit.Code != 2 {
				t.Errorf("hand-over %+v", h)
			}
			closeFiles(h.Runs[0].Pipes)
			if m, _ := k.hear(); m.Kind != kindHello || m.Version != 1 {
				t.Errorf("answer to hello %+v", m)
			}
			if m, _ := k.hear(); m.Kind != kindAck || m.Seq != 5 || m.Count != 1 || m.Error != "" {
				t.Errorf("acknowledgement %+v", m)
			}
			if req := <-l.Requests(); req.Replace || time.Until(req.Deadline) < time.Second {
				t.Errorf("request %+v", req)
			}
			k.useAndDie(l)
			if got := openFDs(); len(got) != len(before)-2 { // the two ends of the socket
				t.Errorf("descriptors %v, before %v", got, before)
			}
		})
	}
}

// useAndDie answers one registration, with no mark, and dies over the next.
func (k *fakeKeeper) useAndDie(l *Link) {
	t := k.t
	t.Helper()
	answered := make(chan error, 1)
	go func() { answered <- l.Register("c", "c", descriptors(os.Stdin)) }() // ends with the answer
	m, fds := k.hear()
	closeAll(fds)
	k.say(fmt.Sprintf(`{"kind":"ack","seq":%d,"count":1}`, m.Seq)) // an older one gives no mark
	if err := <-answered; err != nil {
		t.Error(err)
	}
	ran := false
	l.Mark("c", func() { ran = true })
	(*Link)(nil).Mark("c", func() { ran = ran && true })
	if !ran {
		t.Error("Mark did not run the start")
	}
	go func() { answered <- l.Register("d", "d", nil) }() // ends with the keeper
	k.hear()
	k.die()
	if err := <-answered; !errors.Is(err, ErrGone) {
		t.Errorf("register: %v, want ErrGone", err)
	}
	<-l.Gone()
	for range l.Exits() {
		t.Error("an exit")
	}
	if err := l.Ready(); !errors.Is(err, ErrGone) {
		t.Errorf("ready: %v, want ErrGone", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func openFDs() (out []string) {
	for fd := range 200 {
		if to, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); err == nil {
			out = append(out, fmt.Sprint(fd, " ", to))
		}
	}
	return out
}

func TestConnectRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		say  []string
		want error
	}{
		"incompatible":    {[]string{`{"kind":"hello","version":9,"oldest":5}`}, ErrProtocol},
		"no hello":        {[]string{`{"kind":"end"}`}, ErrProtocol},
		"garbage":         {[]string{`garbage`}, ErrProtocol},
		"closed file":     {[]string{`{"kind":"hello","version":1,"files":[199]}`}, ErrProtocol},
		"few descriptors": {[]string{`{"kind":"hello","version":1}`, `{"kind":"runs","seq":1,"runs":[{"id":"a","pipes":2}]}`}, ErrDescriptors},
		"dies":            {[]string{`{"kind":"hello","version":1}`}, ErrGone},
		"dies at once":    {nil, ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			before := openFDs()
			k, theirs := newFakeKeeper(t)
			for i, s := range tc.say {
				if i == 0 {
					k.say(s)
				} else {
					k.say(s, 1) // one descriptor
				}
			}
			if tc.want == ErrGone {
				k.die()
			}
			if _, _, err := Connect(theirs); !errors.Is(err, tc.want) {
				t.Errorf("Connect: %v, want %v", err, tc.want)
			}
			k.die()
			if after := openFDs(); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("descriptors %v, before %v", after, before)
			}
		})
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	if _, _, err := Connect(int(r.Fd())); !errors.Is(err, ErrProtocol) {
		t.Errorf("Connect to a pipe: %v, want ErrProtocol", err)
	}
}

// What a supervisor said is read although it died with something unread,
// which the kernel tells first, as an error.
func TestLastWords(t *testing.T) {
	k, theirs := newFakeKeeper(t)
	k.say(`{"kind":"end"}`) // never read
	b, _ := json.Marshal(message{Kind: kindSettled, ID: "a"})
	for range 3 {
		if err := sendPacket(theirs, b, nil); err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(theirs)
	for range 3 {
		if m, _, err := k.recv.packet(k.sock); err != nil || m.ID != "a" {
			t.Fatalf("%+v, %v, want the message", m, err)
		}
	}
	if _, _, err := k.recv.packet(k.sock); err != errClosed {
		t.Errorf("%v, want errClosed", err)
	}
}

// slowRole takes the first page and leaves it unacknowledged until it is told.
func slowRole([]string) int {
	conn, err := net.FileConn(os.NewFile(4, "control"))
	if err != nil {
		return 94
	}
	tell := func(rep report) {
		b, _ := json.Marshal(rep)
		conn.Write(b)
	}
	var in receiver
	for {
		unix.Poll([]unix.PollFd{{Fd: 3, Events: unix.POLLIN}}, -1)
		m, fds, err := in.packet(3)
		if err == unix.EAGAIN {
			continue
		}
		if err != nil {
			return 95
		}
		switch m.Kind {
		case kindHello:
			sendPacket(3, []byte(`{"kind":"hello","version":1}`), nil)
		case kindRuns:
			tell(report{Event: "page", PID: os.Getpid()})
			conn.Read(make([]byte, 10))
			sendPacket(3, fmt.Appendf(nil, `{"kind":"ack","seq":%d,"count":%d}`, m.Seq, len(fds)), nil)
		case kindExit:
			tell(report{Event: "exit", Exit: m.Exit.exit()})
		case kindEnd:
			tell(report{Event: "end"})
		}
	}
}

// An end that comes while the hand-over is under way is told after it.
func TestExitDuringHandOver(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec "+exe+" role slow\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigConfig{})
	r.connected()
	a, open := r.spawnGated("a", "3")
	r.do("spawned a")
	r.do("replace %s", slow)
	r.tell("exit 0")
	r.next("page")
	open()
	awaitEnd(t, a.PID)
	r.tell("go")
	r.next("end")
	if e := r.exitOf("a"); e.Code != 3 || e.PID != a.PID {
		t.Errorf("exit %+v, want 3", e)
	}
}

// A number that has another owner by now is not taken for the command.
func TestReusedNumber(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigConfig{})
	r.connected()
	r.do("register a 1")
	r.do("lie a %d 1", os.Getpid()) // as if the command had had our number
	r.do("register b 1")
	r.do("lie b 4194304 1") // above any number there is
	h := r.kill()
	for _, id := range []string{"a", "b"} {
		if got := h.run(t, id); got.Exit == nil || got.Exit.Lost == "" {
			t.Errorf("run %+v exit %+v, want it lost", got, got.Exit)
		}
	}
}

// Marks are read of whatever a process has become.
func TestMarks(t *testing.T) {
	r := newRig(t, rigConfig{})
	r.connected()
	path, open := gate(t)
	r.do("register a 1")
	a := r.do("spawn a exec env -i sh -c 'read x <%s; exit 1'", path)
	mark := platform.MarkOf(a.PID)
	if mark < 1<<62 {
		t.Errorf("mark %d", mark)
	}
	open()
	awaitEnd(t, a.PID)
	if got := platform.MarkOf(a.PID); got != mark {
		t.Errorf("mark of the zombie %d, want %d", got, mark)
	}
	if got := platform.MarkOf(r.sup.PID); got != 0 {
		t.Errorf("mark %d is left on the supervisor", got)
	}
	if platform.NeverExecuted(a.PID) || platform.NeverExecuted(os.Getpid()) {
		t.Error("NeverExecuted of processes that have")
	}
}
