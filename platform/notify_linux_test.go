package platform

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func sendTo(t *testing.T, name, text string, fds ...int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Sendmsg(fd, []byte(text), unix.UnixRights(fds...), &unix.SockaddrUnix{Name: name}, 0)
		unix.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A datagram stays in the queue until it is dropped, whatever became of who looked
// at it, and what came with it is closed then.
func TestPeekAndDrop(t *testing.T) {
	name := NewNotifyName()
	sock, err := ListenNotify(name)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if _, err := ListenNotify(name); err == nil {
		t.Error("the name was given twice")
	}
	if Pending(sock) {
		t.Error("something is pending")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sendTo(t, name, "READY=1", int(w.Fd()))
	w.Close()
	sendTo(t, name, strings.Repeat("x", 5000))
	for range 2 {
		d, err := PeekDatagram(sock)
		if err != nil || string(d.Data) != "READY=1" || d.TooLong || d.Files() != 1 || d.Sender.PID != os.Getpid() || int(d.Sender.UID) != os.Geteuid() {
			t.Fatalf("%+v, %v", d, err)
		}
		d.Close()
	}
	_ = r.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := r.Read(make([]byte, 1)); !os.IsTimeout(err) {
		t.Errorf("before it was dropped: %v", err)
	}
	if err := DropDatagram(sock); err != nil {
		t.Fatal(err)
	}
	_ = r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := r.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) { // end of file: nobody holds the other end
		t.Errorf("after it was dropped: %v", err)
	}
	d, err := PeekDatagram(sock)
	if err != nil || !d.TooLong || len(d.Data) != maxDatagram {
		t.Fatalf("%+v, %v", d, err)
	}
	d.Close()
	if err := DropDatagram(sock); err != nil || Pending(sock) {
		t.Errorf("%v, pending %v", err, Pending(sock))
	}
}

// A line stays in the pipe for whoever holds it next; its absence is told once
// every writer is gone or too much came.
func TestAwaitLine(t *testing.T) {
	for name, tc := range map[string]struct {
		write []string
		line  string
		ok    bool
	}{
		"line": {[]string{"0\n"}, "0", true}, "pieces": {[]string{"4", "2", "\nrest"}, "42", true}, "empty": {[]string{"\n"}, "", true},
		"closed": {nil, "", false}, "no line": {[]string{"half"}, "", false}, "too long": {[]string{strings.Repeat("x", 64), "\n"}, "", false},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		type answer struct {
			line string
			ok   bool
			err  error
		}
		told := make(chan answer, 1)
		go func() { // ends with the line
			line, ok, err := AwaitLine(r, 64)
			told <- answer{string(line), ok, err}
		}()
		for _, s := range tc.write {
			if _, err := w.WriteString(s); err != nil {
				t.Fatal(err)
			}
		}
		if name == "closed" || name == "no line" {
			w.Close()
		}
		if a := <-told; a != (answer{tc.line, tc.ok, nil}) {
			t.Errorf("%s: %+v", name, a)
		}
		w.Close()
		want := strings.Join(tc.write, "")
		_ = r.SetReadDeadline(time.Now().Add(10 * time.Second))
		got := make([]byte, len(want)+1)
		n, _ := r.Read(got)
		if string(got[:n]) != want {
			t.Errorf("%s: left in the pipe %q, want %q", name, got[:n], want)
		}
		r.Close()
	}
}

func TestInCgroup(t *testing.T) {
	needRoot(t)
	h, err := FindCgroup()
	if err != nil || !h.Writable {
		t.Skip("no cgroup to write")
	}
	if InCgroup(os.Getpid(), h.Base+"/procsup-nobody") || InCgroup(1<<22, h.Base) {
		t.Error("a process is where it is not")
	}
	if id, ok := CgroupID(h.Base); !ok || id == 0 {
		t.Errorf("id %d, %v", id, ok)
	}
	if _, ok := CgroupID(h.Base + "/nowhere"); ok {
		t.Error("what is not there has an id")
	}
}
