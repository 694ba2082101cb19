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
	e.body.dropClosed()
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

// dropClosed forgets the numbers of files that were closed after they had been
// looked at: others have them now, or nobody.
func (e *estate) dropClosed() {
	for _, r := range e.Runs {
		for i, id := range r.PipeIDs {
			if got, ok := identify(r.Pipes[i]); !ok || got != id {
				r.Pipes[i] = -1
			}
		}
	}
	for i := range e.Runs {
		r := &e.Runs[i]
		if r.PidfdID == nil {
			continue
		}
		if got, ok := identify(r.Pidfd); !ok || got != *r.PidfdID {
			r.Pidfd = -1
		}
	}
}

func identify(fd int) (id fileID, ok bool) {
	var st unix.Stat_t
	if fd < 0 || unix.Fstat(fd, &st) != nil {
		return id, false
	}
	return fileID{st.Dev, st.Ino}, true
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
	fd, err := unix.MemfdCreate("procsup-estate", 0) // first: it could get the number of what is closed meanwhile
	if err != nil {
		return fmt.Errorf("write estate: memfd_create: %w", err)
	}
	defer unix.Close(fd)
	own := e.descriptors()
	e.find()
	defer e.each(func(d Descriptor) { _ = d.Control(func(fd uintptr) { platform.SetCloexec(int(fd)) }) })
	if err := e.write(fd); err != nil {
		return err
	}
	for _, fd := range own {
		leaveOpen(fd)
	}
	err = syscall.Exec(exe, append(argv[:len(argv):len(argv)], strconv.Itoa(fd)), os.Environ())
	for _, fd := range own {
		platform.SetCloexec(fd)
	}
	return &os.PathError{Op: "exec", Path: exe, Err: err}
}

func (e *estate) write(fd int) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write estate: %w", err)
	}
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
	return nil
}

// find makes what others may close any moment survive execve(2), and notes its
// numbers: -1 for what is closed. A number that is closed after that is taken, if
// at all, by a file that is closed on exec.
func (e *estate) find() {
	for i := range e.Runs {
		r := &e.Runs[i]
		for _, d := range r.held {
			n, id := stay(d)
			r.Pipes, r.PipeIDs = append(r.Pipes, n), append(r.PipeIDs, id)
		}
		if r.heldPidfd != nil {
			n, id := stay(r.heldPidfd)
			r.Pidfd, r.PidfdID = n, &id
		}
	}
}

func stay(d Descriptor) (n int, id fileID) {
	n = -1
	_ = d.Control(func(fd uintptr) {
		var ok bool
		if id, ok = identify(int(fd)); ok {
			leaveOpen(int(fd))
			n = int(fd)
		}
	})
	return n, id
}

// each calls f for what others may close.
func (e *estate) each(f func(Descriptor)) {
	for _, r := range e.Runs {
		for _, d := range r.held {
			f(d)
		}
		if r.heldPidfd != nil {
			f(r.heldPidfd)
		}
	}
}

// leaveOpen makes a descriptor survive execve(2).
func leaveOpen(fd int) { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0) }
