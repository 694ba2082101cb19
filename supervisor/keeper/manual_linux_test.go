package keeper

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"procsup/platform"
)

// A manual supervisor does one step for each line that the test sends, so that
// the test can kill it between any two.
type manual struct {
	conn  *net.UnixConn
	link  *Link
	raw   int // a duplicate of the socket
	carry map[string]string
	runs  map[string]*manualRun

	unmarked bool // spawn without marks
}

type manualRun struct {
	read, write []*os.File
	pid         int
	ticks       uint64
	pidfd       *os.File // of the hand-over, or of holdpidfd
}

func manualRole([]string) int {
	sock, err := unix.FcntlInt(3, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return 96
	}
	link, h, err := Connect(3)
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect:", err)
		return 95
	}
	conn, err := net.FileConn(h.Files[0])
	if err != nil {
		return 94
	}
	m := &manual{conn: conn.(*net.UnixConn), link: link, raw: sock, carry: h.Carry, runs: map[string]*manualRun{}}
	rep := report{Event: "handover", Generation: h.Generation, Keeper: h.KeeperPID, Version: h.Version, Files: len(h.Files)}
	for _, r := range h.Runs {
		m.runs[r.ID] = &manualRun{read: r.Pipes, pid: r.PID, ticks: r.StartTicks, pidfd: r.Pidfd}
		rep.Runs = append(rep.Runs, reportRun{r.ID, r.Token, len(r.Pipes), r.PID, r.StartTicks, r.Pending, r.Exit, r.Pidfd != nil})
	}
	m.report(rep)
	go m.forward()
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return 0
		}
		f := strings.Fields(string(buf[:n]))
		rep, err := m.step(f[0], f[1:])
		rep.Event = "reply"
		if err != nil {
			rep.Err, rep.Refused = err.Error(), errors.Is(err, ErrRefused)
		}
		m.report(rep)
	}
}

func (m *manual) report(rep report) {
	rep.PID = max(rep.PID, os.Getpid()*b2i(rep.Event == "handover"))
	b, _ := json.Marshal(rep)
	if len(b) > 150_000 { // more than the wire takes
		rep.Text, rep.Runs = fmt.Sprintf("%d runs", len(rep.Runs)), nil
		b, _ = json.Marshal(rep)
	}
	if _, err := m.conn.Write(b); err != nil {
		os.Exit(93)
	}
}

func (m *manual) forward() {
	for {
		select {
		case f := <-m.link.Found():
			if f.ID != "" {
				m.report(report{Event: "found", Text: f.ID, PID: f.PID, Ticks: f.StartTicks})
			}
		case e, ok := <-m.link.Exits():
			if !ok {
				m.report(report{Event: "gone"})
				return
			}
			m.report(report{Event: "exit", Exit: &e})
		case r := <-m.link.Requests():
			m.report(report{Event: "request", Request: &r})
		}
	}
}

// step does one thing. Arguments that are programs' have no blanks in them.
func (m *manual) step(verb string, args []string) (rep report, err error) {
	id, r := "", &manualRun{}
	if len(args) > 0 {
		id = args[0]
		if m.runs[id] != nil {
			r = m.runs[id]
		}
	}
	switch verb {
	case "register": // id pipes
		return rep, m.register(id, args[1])
	case "spawn": // id script…
		r.pid, err = m.spawn(id, strings.Join(args[1:], " "))
		if err == nil {
			var ident platform.Identity
			ident, err = platform.Identify(r.pid)
			r.ticks = ident.StartTicks
		}
		return report{PID: r.pid, Ticks: r.ticks}, err
	case "halfway": // id gate script…: a child that has not executed yet
		r.pid, err = m.forkHalfway(id, args[1], strings.Join(args[2:], " "))
		return report{PID: r.pid}, err
	case "later": // without waiting for it
		go func() { // ends with the process
			rep, err := m.step(args[0], args[1:])
			rep.Event, rep.Err = "later", fmt.Sprint(err)
			m.report(rep)
		}()
		return rep, nil
	case "unmarked":
		m.unmarked = true
		return rep, nil
	case "reap":
		_, _, err = platform.Reap(r.pid)
		return rep, err
	case "read1", "read": // id pipe
		return r.readLine(atoi(args[1]), verb == "read1")
	case "exe":
		rep.Text, err = os.Readlink("/proc/self/exe")
		return rep, err
	case "succeed":
		exe := "/proc/self/exe"
		if id != "" {
			exe = id
		}
		return rep, m.link.Succeed(exe, []string{"sup", "role", "heir", m.carry["config"]})
	case "exit":
		os.Exit(atoi(id))
	}
	return m.talk(verb, id, r, args)
}

// talk is the steps that only tell the keeper something.
func (m *manual) talk(verb, id string, r *manualRun, args []string) (rep report, err error) {
	switch verb {
	case "spawned":
		return rep, m.link.Spawned(id, r.pid, r.ticks)
	case "withdraw":
		return rep, m.link.Withdraw(id)
	case "trim": // id pipes
		return rep, m.link.Trim(id, atoi(args[1]))
	case "settled":
		return rep, m.link.Settled(id)
	case "ready":
		return rep, m.link.Ready()
	case "done":
		return rep, m.link.ShutdownDone()
	case "replace":
		return rep, m.link.Replace(id)
	case "close":
		return rep, errors.Join(m.link.Close(), unix.Close(m.raw))
	case "fake": // its command is this process
		ident, err := platform.Identify(os.Getpid())
		if err != nil {
			return rep, err
		}
		return rep, m.link.Spawned(id, ident.PID, ident.StartTicks)
	case "lie": // id pid ticks
		return rep, m.link.Spawned(id, atoi(args[1]), uint64(atoi(args[2])))
	case "bench":
		return m.bench(atoi(id))
	case "rawfds": // and three descriptors
		return rep, sendPacket(m.raw, []byte(strings.Join(args, " ")), []int{0, 1, 2})
	case "raw": // a packet of whatever bytes
		return rep, sendPacket(m.raw, []byte(strings.Join(args, " ")), nil)
	}
	return rep, m.hold(verb, id, r, args)
}

func itoa(n int) string { return strconv.Itoa(n) }

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

func (m *manual) register(id, pipes string) error {
	r := &manualRun{}
	for range atoi(pipes) {
		rd, wr, err := os.Pipe()
		if err != nil {
			return err
		}
		r.read, r.write = append(r.read, rd), append(r.write, wr)
	}
	err := m.link.Register(id, "outer/"+id, descriptors(r.read...))
	if err == nil {
		m.runs[id] = r
	}
	return err
}

// descriptors are those of files.
func descriptors(files ...*os.File) (ds []Descriptor) {
	for _, f := range files {
		rc, _ := f.SyscallConn()
		ds = append(ds, rc)
	}
	return ds
}

// spawn runs a script in a shell with the run's first two pipes as stdout and
// stderr.
func (m *manual) spawn(id, script string) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	r := m.runs[id]
	for i, f := range r.write {
		if i < 2 {
			files[1+i] = f.Fd()
		}
		defer f.Close()
	}
	r.write = nil
	start := func() {
		pid, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
			Env: []string{tokenVar + "=outer/" + id, "PATH=/bin:/usr/bin"}, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	}
	if m.unmarked {
		start()
	} else {
		m.link.Mark(id, start)
	}
	return pid, err
}

// bench measures n starts and ends without their commands.
func (m *manual) bench(n int) (rep report, err error) {
	ident, err := platform.Identify(os.Getpid())
	if err != nil {
		return rep, err
	}
	rd, wr, err := os.Pipe()
	if err != nil {
		return rep, err
	}
	defer rd.Close()
	defer wr.Close()
	began := time.Now()
	for i := range n {
		id := strconv.Itoa(i)
		if err := errors.Join(m.link.Register(id, id, descriptors(rd, wr)), m.link.Spawned(id, ident.PID, ident.StartTicks), m.link.Settled(id)); err != nil {
			return rep, err
		}
	}
	return report{Ticks: uint64(time.Since(began))}, nil
}

// readLine reads a line of one pipe, with exact no byte after it.
func (r *manualRun) readLine(pipe int, exact bool) (rep report, err error) {
	if pipe >= len(r.read) {
		return rep, errors.New("no such pipe")
	}
	if !exact {
		rep.Text, err = bufio.NewReader(r.read[pipe]).ReadString('\n')
		return rep, err
	}
	for b := []byte{0}; b[0] != '\n'; rep.Text += string(b) {
		if _, err := r.read[pipe].Read(b); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
