package keeper

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// OpenEstate reads what the program that this process executed before left for
// it: fd is the number that was its last argument. It is to be called before
// anything is started, as the descriptors would be inherited; they belong to
// the Estate from then on, also when it fails.
func OpenEstate(fd int) (*Estate, error) {
	f := os.NewFile(uintptr(fd), "estate")
	if f == nil {
		return nil, fmt.Errorf("open estate: descriptor %d: %w", fd, os.ErrInvalid)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("open estate: descriptor %d: %w", fd, err)
	}
	b := make([]byte, st.Size)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("read estate: %w", err)
	}
	e := &Estate{}
	var err error
	if e.body, err = parseEstate(b); err != nil {
		return nil, err
	}
	for _, fd := range e.body.descriptors() {
		platform.SetCloexec(fd)
	}
	e.Carry = e.body.Carry
	if e.body.Lock >= 0 {
		e.Lock = os.NewFile(uintptr(e.body.Lock), "lock")
	}
	for _, fd := range e.body.Files {
		e.Files = append(e.Files, os.NewFile(uintptr(fd), "activation"))
	}
	return e, nil
}

// pass makes this process execute exe, which goes on as keeper from the estate:
// argv gets the number of its descriptor as last argument. The descriptors in
// it are left open. Nothing may be started meanwhile: syscall.ForkLock is held.
// It returns only when it fails, and all is as before.
//
// The process stays what it was: its number, children, subreaper flag
// (PR_SET_CHILD_SUBREAPER(2const)) and locks by flock(2), which belong to the
// open file, outlive execve(2).
func (e *estate) pass(exe string, argv []string) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write estate: %w", err)
	}
	fd, err := unix.MemfdCreate("procsup-estate", 0)
	if err != nil {
		return fmt.Errorf("write estate: memfd_create: %w", err)
	}
	defer unix.Close(fd)
	for done := 0; done < len(b); {
		n, err := unix.Write(fd, b[done:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("write estate: %w", err)
		}
		done += n
	}
	all := e.descriptors()
	for _, fd := range all {
		leaveOpen(fd)
	}
	err = syscall.Exec(exe, append(argv[:len(argv):len(argv)], strconv.Itoa(fd)), os.Environ())
	for _, fd := range all {
		platform.SetCloexec(fd)
	}
	return &os.PathError{Op: "exec", Path: exe, Err: err}
}

// leaveOpen makes a descriptor survive execve(2).
func leaveOpen(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0) }
