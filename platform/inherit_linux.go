package platform

import (
	"bytes"
	"encoding/binary"
	"os/signal"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// InheritedSignals reports which signals were ignored and blocked when this
// process was started. The runtime installs its handlers before any of our
// code runs and keeps what it found only for itself (runtime.fwdSig and
// runtime.initSigmask), so this reads those two variables by the symbol table
// of our own executable. A stripped or position-independent executable, or
// another layout than this code knows, gives Known false.
func InheritedSignals() Inherited {
	const signals = 65 // runtime._NSIG on Linux
	fwd, mask, ok := runtimeSignalState()
	if !ok {
		return Inherited{}
	}
	handlers := make([]byte, 8*signals)
	blocked := make([]byte, 8)
	if !readSelf(fwd, handlers) || !readSelf(mask, blocked) {
		return Inherited{}
	}
	in := Inherited{Known: true, Mask: binary.NativeEndian.Uint64(blocked)}
	for s := 1; s < signals; s++ {
		switch h := binary.NativeEndian.Uint64(handlers[8*s:]); {
		case h == 1: // SIG_IGN
			in.Ignored = append(in.Ignored, syscall.Signal(s))
		case h != 0 && !(s == 32 || s == 33):
			return Inherited{} // a new program has no handlers: not what we think it is
		}
	}
	return in
}

// readSelf copies memory of this process, failing where a plain load would
// crash.
func readSelf(addr uint64, to []byte) bool {
	local := []unix.Iovec{{Base: &to[0], Len: uint64(len(to))}}
	n, err := unix.ProcessVMReadv(unix.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(to)}}, 0)
	return err == nil && n == len(to)
}

// runtimeSignalState finds the addresses of the two variables, elf(5).
func runtimeSignalState() (fwd, mask uint64, ok bool) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return 0, 0, false
	}
	fd, err := openRetry("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC)
	if err != nil {
		return 0, 0, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0, 0, false
	}
	b, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return 0, 0, false
	}
	defer unix.Munmap(b)
	symtab, strtab, ok := symbolTables(b)
	if !ok {
		return 0, 0, false
	}
	fwd, ok1 := symbolAddress(symtab, strtab, "runtime.fwdSig", 65*8)
	mask, ok2 := symbolAddress(symtab, strtab, "runtime.initSigmask", 8)
	return fwd, mask, ok1 && ok2
}

// symbolTables returns .symtab and its strings from a 64-bit little-endian
// executable with fixed addresses.
func symbolTables(b []byte) (symtab, strtab []byte, ok bool) {
	const header, section = 64, 64
	if len(b) < header || string(b[:6]) != "\x7fELF\x02\x01" || binary.LittleEndian.Uint16(b[16:]) != 2 { // ET_EXEC
		return nil, nil, false
	}
	le := binary.LittleEndian
	off, n := le.Uint64(b[40:]), uint64(le.Uint16(b[60:]))
	at := func(i uint64) []byte { return slice(b, off+i*section, section) }
	for i := range n {
		s := at(i)
		if s == nil {
			return nil, nil, false
		}
		if le.Uint32(s[4:]) != 2 { // SHT_SYMTAB
			continue
		}
		names := at(uint64(le.Uint32(s[40:])))
		if names == nil {
			return nil, nil, false
		}
		symtab = slice(b, le.Uint64(s[24:]), le.Uint64(s[32:]))
		strtab = slice(b, le.Uint64(names[24:]), le.Uint64(names[32:]))
		return symtab, strtab, symtab != nil && strtab != nil
	}
	return nil, nil, false
}

func slice(b []byte, off, n uint64) []byte {
	if off > uint64(len(b)) || n > uint64(len(b))-off {
		return nil
	}
	return b[off : off+n]
}

// symbolAddress looks a symbol up by the place of its name, which is quicker
// than comparing every name.
func symbolAddress(symtab, strtab []byte, name string, size uint64) (uint64, bool) {
	const entry = 24
	at := bytes.Index(strtab, []byte("\x00"+name+"\x00"))
	if at < 0 {
		return 0, false
	}
	for i := 0; i+entry <= len(symtab); i += entry {
		if binary.LittleEndian.Uint32(symtab[i:]) == uint32(at+1) {
			return binary.LittleEndian.Uint64(symtab[i+8:]), binary.LittleEndian.Uint64(symtab[i+16:]) == size
		}
	}
	return 0, false
}

// Restore ignores again what was ignored at the start, so that programs
// started from now on ignore it too; INT is left out, see CatchStops. It
// reports whether anything is.
func (in Inherited) Restore() bool {
	any := false
	for _, s := range in.Ignored {
		if s != unix.SIGINT && !signal.Ignored(s) {
			signal.Ignore(s)
		}
		any = true
	}
	return any
}

// WithMask runs start, which starts a program, on a thread whose signal mask
// is the one this process was started with: the program inherits it.
func (in Inherited) WithMask(start func()) {
	if !in.Known || in.Mask == 0 {
		start()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var set, old unix.Sigset_t
	set.Val[0] = in.Mask
	if unix.PthreadSigmask(unix.SIG_SETMASK, &set, &old) == nil {
		defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	}
	start()
}
