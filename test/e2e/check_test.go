//go:build linux

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// cmdAwait waits until a file exists with a line in it, or with text that
// matches: await FILE [REGEXP]. It is woken by changes in the file's folder.
func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: await FILE [REGEXP]")
	}
	re := regexp.MustCompile(`\n`)
	if len(args) == 2 {
		re = regexp.MustCompile(`(?m)` + args[1])
	}
	path := ts.MkAbs(args[0])
	if !awaitFile(path, re) {
		data, err := os.ReadFile(path)
		ts.Fatalf("%s does not match %s after %v: %q, %v", args[0], re, patience, data, err)
	}
}

func awaitFile(path string, re *regexp.Regexp) bool {
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return false
	}
	defer unix.Close(watch)
	const changes = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_TO | unix.IN_CLOSE_WRITE
	if _, err := unix.InotifyAddWatch(watch, filepath.Dir(path), changes); err != nil {
		return false
	}
	buf := make([]byte, 4096)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if data, err := os.ReadFile(path); err == nil && re.Match(data) {
			return true
		}
		unix.Poll([]unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}}, 1000)
		unix.Read(watch, buf)
	}
	return false
}

func pidsOf(ts *testscript.TestScript, file string) []int {
	list, err := pidsIn([]byte(ts.ReadFile(file)))
	if err != nil {
		ts.Fatalf("%s: %v", file, err)
	}
	return list
}

// cmdAlive checks that every pid in the files lives: alive PIDFILE… .
func cmdAlive(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("use gone")
	}
	for _, file := range args {
		for _, pid := range pidsOf(ts, file) {
			if !alive(pid) {
				ts.Fatalf("%s: %d is gone (state %q)", file, pid, stateOf(pid))
			}
		}
	}
}

// cmdGone checks that no pid in the file lives at this moment, or once the
// time is over: gone PIDFILE [WITHIN].
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: gone PIDFILE [WITHIN]")
	}
	var within time.Duration
	if len(args) == 2 {
		d, err := time.ParseDuration(args[1])
		ts.Check(err)
		within = d
	}
	end := time.Now().Add(within)
	var left []string
	for _, pid := range pidsOf(ts, args[0]) {
		if alive(pid) && !waitGone(pid, time.Until(end)) {
			left = append(left, fmt.Sprintf("%d (%s)", pid, commandOf(pid)))
		}
	}
	if len(left) > 0 {
		ts.Fatalf("%s: alive: %v", args[0], left)
	}
}

// cmdClock starts the stopwatch that took reads.
func cmdClock(ts *testscript.TestScript, _ bool, _ []string) { stageOf(ts).clock = time.Now() }

// cmdTook checks the time since clock: took MIN MAX.
func cmdTook(ts *testscript.TestScript, neg bool, args []string) {
	got := time.Since(stageOf(ts).clock)
	if neg || len(args) != 2 {
		ts.Fatalf("usage: took MIN MAX")
	}
	lo, err := time.ParseDuration(args[0])
	ts.Check(err)
	hi, err := time.ParseDuration(args[1])
	ts.Check(err)
	if got < lo || got > hi {
		ts.Fatalf("took %v, want %v to %v", got, lo, hi)
	}
}

// cmdJSON checks a value in a JSON document: json FILE PATH WANT, where PATH is
// like cleanup.signals.0.signal, and WANT a value or ~REGEXP on its JSON text.
// FILE may be stdout.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH WANT|~REGEXP")
	}
	var doc any
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	dec.UseNumber()
	if err := dec.Decode(&doc); err != nil {
		ts.Fatalf("%s: %v\n%s", args[0], err, ts.ReadFile(args[0]))
	}
	got := lookUp(doc, args[1])
	ok := got == args[2]
	if re, isRE := strings.CutPrefix(args[2], "~"); isRE {
		ok = regexp.MustCompile(re).MatchString(got)
	}
	if ok == neg {
		ts.Fatalf("%s is %s, want %s (not: %v)\n%s", args[1], got, args[2], neg, ts.ReadFile(args[0]))
	}
}

// lookUp is the text of the value at a path: a string as it is, null for what
// is not there, all else as JSON.
func lookUp(doc any, path string) string {
	for _, key := range strings.Split(path, ".") {
		switch v := doc.(type) {
		case map[string]any:
			doc = v[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(v) {
				return "null"
			}
			doc = v[i]
		default:
			return "null"
		}
	}
	if s, ok := doc.(string); ok {
		return s
	}
	b, _ := json.Marshal(doc)
	return string(b)
}

// cmdLines checks how many lines a file has: lines FILE N.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: lines FILE N")
	}
	if got := fmt.Sprint(strings.Count(ts.ReadFile(args[0]), "\n")); (got == args[1]) == neg {
		ts.Fatalf("%s has %s lines, want %s (not: %v)", args[0], got, args[1], neg)
	}
}

// cmdSize checks that a file's size or a folder's disk use lies in a range:
// size FILE|DIR MIN MAX.
func cmdSize(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: size FILE MIN MAX")
	}
	lo, _ := strconv.ParseInt(args[1], 10, 64)
	hi, _ := strconv.ParseInt(args[2], 10, 64)
	got, err := diskUse(ts.MkAbs(args[0]))
	ts.Check(err)
	if got < lo || got > hi {
		ts.Fatalf("%s uses %d bytes, want %d to %d", args[0], got, lo, hi)
	}
}

// diskUse is du -B1: the blocks in use, not the apparent size.
func diskUse(root string) (total int64, err error) {
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		total += st.Blocks * 512
		return nil
	})
	return total, err
}

func record(ts *testscript.TestScript, file string) (doc any) {
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(file)), &doc))
	return doc
}

// cmdSame checks that the file which a record names holds the same bytes as
// another: same RECORD PATH FILE.
func cmdSame(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: same RECORD PATH FILE")
	}
	name := lookUp(record(ts, args[0]), args[1])
	if got, want := ts.ReadFile(name), ts.ReadFile(args[2]); got != want {
		ts.Fatalf("%s has %d bytes and differs from the %d of %s", name, len(got), len(want), args[2])
	}
}

// cmdText checks that the text a record carries is, decoded, that of a file:
// text RECORD stdout|stderr FILE.
func cmdText(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: text RECORD stdout|stderr FILE")
	}
	doc := record(ts, args[0])
	got := lookUp(doc, args[1]+".text")
	if lookUp(doc, args[1]+".encoding") == "base64" {
		b, err := base64.StdEncoding.DecodeString(lookUp(doc, args[1]+".base64"))
		ts.Check(err)
		got = string(b)
	}
	if want := ts.ReadFile(args[2]); got != want {
		ts.Fatalf("%s has %d bytes, want the %d of %s", args[1], len(got), len(want), args[2])
	}
}

// cmdAtMost checks the number in a file: atmost FILE LIMIT.
func cmdAtMost(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: atmost FILE LIMIT")
	}
	got, err := strconv.ParseInt(strings.TrimSpace(ts.ReadFile(args[0])), 10, 64)
	ts.Check(err)
	limit, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	if got > limit {
		ts.Fatalf("%s is %d, want at most %d", args[0], got, limit)
	}
}
