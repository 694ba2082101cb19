package platform

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
)

// Interpreter is the program that the kernel starts to run a file: the one in
// a script's first line (execve(2)), or a binary's dynamic loader (elf(5),
// PT_INTERP); "" if there is none or the file cannot be read.
func Interpreter(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, _ := io.ReadFull(f, head)
	head = head[:n]
	if s, ok := bytes.CutPrefix(head, []byte("#!")); ok {
		line, _, _ := bytes.Cut(s, []byte("\n"))
		if w := bytes.Fields(line); len(w) > 0 {
			return string(w[0])
		}
		return ""
	}
	return elfInterpreter(head)
}

// elfInterpreter reads PT_INTERP of a 64-bit little-endian file.
func elfInterpreter(b []byte) string {
	if len(b) < 64 || string(b[:4]) != "\x7fELF" || b[4] != 2 || b[5] != 1 {
		return ""
	}
	le := binary.LittleEndian
	off, size, count := le.Uint64(b[32:]), uint64(le.Uint16(b[54:])), uint64(le.Uint16(b[56:]))
	for i := range count {
		p := off + i*size
		if p > uint64(len(b)) || p+56 > uint64(len(b)) {
			return ""
		}
		if le.Uint32(b[p:]) != 3 { // PT_INTERP
			continue
		}
		from, n := le.Uint64(b[p+8:]), le.Uint64(b[p+32:])
		if from > uint64(len(b)) || n > uint64(len(b))-from {
			return ""
		}
		return string(bytes.TrimRight(b[from:from+n], "\x00"))
	}
	return ""
}
