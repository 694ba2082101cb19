// Command bench measures procsup against the bare limits of this machine and
// against the wrappers that are installed, and prints the tables.
//
//	go run ./test/bench [-n N] [-mb MIB] [wrap|capture|kill|ready|all]
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
	rounds = flag.Int("n", 100, "`rounds` of wrap; kill takes a twentieth of it")
	mib    = flag.Int("mb", 128, "`MiB` a writer writes in capture; unbuffered lines an eighth")
	binary = flag.String("procsup", "", "`file` to measure instead of building cmd/procsup")
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
	items := map[string]func(*lab) error{"wrap": wrap, "capture": captureItem, "kill": kill, "ready": readyItem}
	names := []string{what}
	if what == "" || what == "all" {
		names = []string{"wrap", "capture", "kill", "ready"}
	}
	for _, name := range names {
		if items[name] == nil {
			return fmt.Errorf("no item %q: wrap, capture, kill, ready or all", name)
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
	dir                          string
	self, procsup, empty, gowrap string
	env                          []string // of ready: with a daemon of its own
}

// newLab builds the programs into a folder that other users can read.
func newLab() (*lab, error) {
	dir, err := os.MkdirTemp("", "procsup-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{dir: dir, procsup: filepath.Join(dir, "procsup"), empty: filepath.Join(dir, "empty"), gowrap: filepath.Join(dir, "gowrap"), self: filepath.Join(dir, "bench")}
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
	for target, pkg := range map[string]string{l.procsup: "procsup/cmd/procsup", l.empty: "procsup/test/bench/empty", l.gowrap: "procsup/test/bench/gowrap"} {
		if target == l.procsup && *binary != "" {
			if l.procsup, err = filepath.Abs(*binary); err != nil {
				return nil, err
			}
			continue
		}
		cmd := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", target, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return l, nil
}

// median of what was measured; NaN-free: 0 for nothing.
func median[T int64 | float64 | time.Duration](v []T) T {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
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
