package platform

import (
	"os"
	"strings"
	"testing"
)

// FuzzParseSignal: what is taken for a signal can be sent, and its name means
// the same one.
func FuzzParseSignal(f *testing.F) {
	for _, s := range []string{"TERM", "sigint", " 9 ", "0", "-1", "65", "64", "RTMIN", "SIGSIGTERM", "1e1", "+1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sig, err := ParseSignal(s)
		if err != nil {
			return
		}
		if sig <= 0 || sig > maxSignal {
			t.Fatalf("%q is %d", s, sig)
		}
		if again, err := ParseSignal(SignalName(sig)); again != sig || err != nil {
			t.Errorf("%q is %d, whose name %s is %d, %v", s, sig, SignalName(sig), again, err)
		}
	})
}

// FuzzMountinfo: lines of /proc/self/mountinfo and of /proc/self/cgroup.
func FuzzMountinfo(f *testing.F) {
	f.Add("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw", "/user.slice/x")
	f.Add(`30 23 0:26 /../.. /a\040b\134 rw - cgroup2 none rw`, "/../x")
	f.Add(`1 2 3 \ \99 - cgroup2 `, "")
	f.Fuzz(func(t *testing.T, line, path string) {
		root, mount, ok := cgroup2Mount([]byte(line))
		if !ok {
			return
		}
		dir, ok := selfBelow(mount, root, path)
		if ok && (!strings.HasPrefix(dir, strings.TrimSuffix(mount, "/")) || strings.HasPrefix(dir[len(strings.TrimSuffix(mount, "/")):], "/..")) {
			t.Errorf("%q is not below %q", dir, mount)
		}
	})
}

// FuzzSymbols: an executable that is none, cut or broken, is not known, and
// nothing behind its end is read.
func FuzzSymbols(f *testing.F) {
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(exe[:64], uint64(40), uint64(64), uint16(1))
	small := make([]byte, 64+3*64)
	copy(small, "\x7fELF\x02\x01")
	small[16], small[40], small[60] = 2, 64, 3
	small[64+4], small[64+40] = 2, 1
	f.Add(small, uint64(^uint64(0)-63), uint64(1)<<63, uint16(0xffff))
	f.Add(small, uint64(64), uint64(24), uint16(3))
	f.Fuzz(func(t *testing.T, b []byte, off, size uint64, n uint16) {
		for _, change := range []func([]byte){func([]byte) {}, func(b []byte) {
			if len(b) >= 64 {
				putLE(b[40:], off)
				b[60], b[61] = byte(n), byte(n>>8)
			}
		}, func(b []byte) {
			if len(b) >= 128 {
				putLE(b[64+24:], off)
				putLE(b[64+32:], size)
			}
		}} {
			c := append([]byte(nil), b...)
			change(c)
			symtab, strtab, ok := symbolTables(c)
			if !ok {
				continue
			}
			if len(symtab) > len(c) || len(strtab) > len(c) {
				t.Fatalf("%d and %d bytes out of %d", len(symtab), len(strtab), len(c))
			}
			for _, name := range []string{"runtime.fwdSig", "a", ""} {
				symbolAddress(symtab, strtab, name, 8)
			}
		}
	})
}

func putLE(b []byte, v uint64) {
	for i := range 8 {
		b[i] = byte(v >> (8 * i))
	}
}
