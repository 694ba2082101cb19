package platform

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// dial connects to args[0] and keeps the connection until stdin ends.
func dial(args []string) int {
	conn, err := net.Dial("unix", args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer conn.Close()
	return hang(nil)
}

// accept starts a dial helper as the given user and returns its connection.
func accept(t *testing.T, uid uint32) (syscall.RawConn, *net.UnixConn, *os.Process, func()) {
	t.Helper()
	self := worldReadableSelf(t)
	sock := filepath.Join(filepath.Dir(self), "sock")
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(sock, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := helperCmd(t, "dial "+sock)
	cmd.Path = self
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid + 1}}
	}
	if got := startReady(t, cmd); got != "ready" {
		t.Fatal(got)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return raw, conn.(*net.UnixConn), cmd.Process, func() { cmd.Process.Kill(); cmd.Wait() }
}

func TestPeerCred(t *testing.T) {
	needRoot(t)
	for _, uid := range []uint32{0, 65432} {
		raw, conn, proc, end := accept(t, uid)
		want := Cred{PID: proc.Pid, UID: uid, GID: uid + 1}
		if uid == 0 {
			want.UID, want.GID = uint32(os.Getuid()), uint32(os.Getgid())
		}
		if got, err := PeerCred(raw); err != nil || got != want {
			t.Errorf("peer %+v, %v; want %+v", got, err, want)
		}
		fd, err := PeerPidfd(raw)
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("pidfd's flags %#x, %v; want close-on-exec", flags, err)
		}
		if err := SignalPidfd(fd, 0); err != nil {
			t.Errorf("the peer lives: %v", err)
		}
		end()
		if err := SignalPidfd(fd, 0); !errors.Is(err, ErrGone) {
			t.Errorf("the peer is gone: %v", err)
		}
		unix.Close(fd)
		conn.Close()
		if _, err := PeerCred(raw); err == nil {
			t.Error("credentials of a closed connection")
		}
		if _, err := PeerPidfd(raw); err == nil {
			t.Error("pidfd of a closed connection")
		}
	}
}
