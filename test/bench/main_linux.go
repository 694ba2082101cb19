// Command bench measures procsup against the bare limits of this machine and
// against the wrappers that are installed, and prints the tables.
//
//	go run ./test/bench [-n N] [-mb MIB] [-idle N] [-records N] [-kills N] [ITEM|all]
//
// An item is wrap, spawn, capture, wake, kill, scale, crash, mcp or ready.
//
// Rows are measured in turn, round after round, so that a noisy machine hits
// all alike. Compare ratios within one run. It asserts nothing about time.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// child is the first argument of a copy of this program that plays a part.
const child = "bench-child"

var (
	rounds  = flag.Int("n", 100, "`rounds` of wrap and wake; spawn and kill take a tenth of it, or less")
	mib     = flag.Int("mb", 128, "`MiB` a writer writes in capture; unbuffered lines an eighth")
	records = flag.Int("records", 100_000, "finished `runs` in the journal, in spawn and scale")
	idle    = flag.Int("idle", 10_000, "idle `commands` at most, in scale")
	kills   = flag.Int("kills", 20, "`SIGKILLs` of the supervisor, in crash")
	binary  = flag.String("procsup", "", "`file` to measure instead of building cmd/procsup")
	daemonB = flag.String("procsupd", "", "`file` to measure instead of building cmd/procsupd")
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == child {
		os.Exit(play(os.Args[2], os.Args[3:]))
	}
	flag.Parse()
	if err := run(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(what string) error {
	items := map[string]func(*lab) error{
		"wrap": wrap, "spawn": spawnItem, "capture": captureItem, "wake": wake, "kill": kill, "scale": scale, "crash": crash, "mcp": mcpItem, "ready": readyItem,
	}
	names := []string{what}
	if what == "" || what == "all" {
		names = []string{"wrap", "spawn", "capture", "wake", "kill", "scale", "crash", "mcp", "ready"}
	}
	for _, name := range names {
		if items[name] == nil {
			return fmt.Errorf("no item %q: wrap, spawn, capture, wake, kill, scale, crash, mcp, ready or all", name)
		}
	}
	// Orphans, a guard for example, come to us and are accounted for.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	l, err := newLab()
	if err != nil {
		return err
	}
	defer os.RemoveAll(l.dir)
	for _, name := range names {
		start := time.Now()
		if err := items[name](l); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("(%s took %.0f s)\n\n", name, time.Since(start).Seconds())
	}
	return nil
}

// A lab is a folder with what is measured.
type lab struct {
	dir                     string
	self, procsup, procsupd string
	empty, gowrap, goclient string
	env                     []string // of ready: with a daemon of its own
}

// newLab builds the programs into a folder that other users can read.
func newLab() (*lab, error) {
	dir, err := os.MkdirTemp("", "procsup-bench-")
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	l := &lab{dir: dir, self: in("bench"), procsup: in("procsup"), procsupd: in("procsupd"), empty: in("empty"), gowrap: in("gowrap"), goclient: in("goclient")}
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(l.self, self, 0o755)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	for _, b := range []struct {
		target *string
		pkg    string
		given  string
	}{
		{&l.procsup, "procsup/cmd/procsup", *binary}, {&l.procsupd, "procsup/cmd/procsupd", *daemonB},
		{&l.empty, "procsup/test/bench/empty", ""}, {&l.gowrap, "procsup/test/bench/gowrap", ""}, {&l.goclient, "procsup/test/bench/goclient", ""},
	} {
		if b.given != "" {
			if *b.target, err = filepath.Abs(b.given); err != nil {
				return nil, err
			}
			continue
		}
		cmd := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", *b.target, b.pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", b.pkg, err, out)
		}
	}
	return l, nil
}

// median of what was measured; NaN-free: 0 for nothing.
func median[T int64 | float64 | time.Duration](v []T) T {
	if len(v) == 0 {
		return 0
	}
	return sorted(v)[len(v)/2]
}

func sorted[T int64 | float64 | time.Duration](v []T) []T {
	v = slices.Clone(v)
	slices.Sort(v)
	return v
}

// table prints rows under a title, columns aligned.
func table(title string, head []string, rows [][]string) {
	fmt.Println(title)
	width := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i == 0 {
				fmt.Print(cell + pad)
			} else {
				fmt.Print("  " + pad + cell)
			}
		}
		fmt.Println()
	}
}

// installed looks a peer up; a peer that is not there has a row that says so.
func installed(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}
