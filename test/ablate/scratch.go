package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// atMost bounds one test: without its rule one may wait for ever.
const atMost = 30 * time.Second

// A scratch is a copy of the repository in which one rule at a time is missing.
type scratch struct{ dir string }

// newScratch copies what git has, or is about to have, of the repository.
func newScratch(under string) (*scratch, error) {
	root, err := output(".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	root = strings.TrimSpace(root)
	names, err := output(root, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(under, "copy-")
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Split(names, "\x00") {
		b, err := os.ReadFile(filepath.Join(root, name))
		if name == "" || errors.Is(err, os.ErrNotExist) { // removed, and not committed yet
			continue
		}
		to := filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(to, b, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	return &scratch{dir: dir}, nil
}

func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, stderr.Bytes())
	}
	return string(out), nil
}

// allPass checks that every named test passes as things are: one that fails
// anyway says nothing about its rule.
func (s *scratch) allPass(chosen []rule) error {
	var names []string
	for _, r := range chosen {
		for _, test := range r.tests {
			names = append(names, r.in()+" "+test)
		}
	}
	slices.Sort(names)
	built := map[string]string{}
	for _, name := range slices.Compact(names) {
		pkg, test, _ := strings.Cut(name, " ")
		if built[pkg] == "" {
			bin, err := s.build(pkg)
			if err != nil {
				return err
			}
			built[pkg] = bin
		}
		ok, say, err := s.passes(built[pkg], pkg, test)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s fails as it is:\n%s", test, say)
		}
	}
	return nil
}

func (r rule) in() string {
	if r.pkg == "" {
		return "supervisor"
	}
	return r.pkg
}

// without takes the rule out, checks that its tests fail, and puts it back.
func (s *scratch) without(r rule) (say string, err error) {
	path := filepath.Join(s.dir, r.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	patched, err := r.patch(string(src))
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(path, []byte(patched), 0o644); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, src, 0o644)) }()
	bin, err := s.build(r.in())
	if err != nil {
		return "", fmt.Errorf("the patch does not compile: %w", err)
	}
	var passed []string
	for _, test := range r.tests {
		ok, out, err := s.passes(bin, r.in(), test)
		if err != nil {
			return say, err
		}
		say += fmt.Sprintf("--- %s without %s\n%s", test, r.name, out)
		if ok {
			passed = append(passed, test)
		}
	}
	if passed != nil {
		err = fmt.Errorf("%s (%s): passes without it: %s", r.name, r.says, strings.Join(passed, ", "))
	}
	return say, err
}

// patch takes the rule out of the text of its file.
func (r rule) patch(src string) (string, error) {
	if n := strings.Count(src, r.old); n != 1 {
		return "", fmt.Errorf("%s: %s has this %d times, want once: %q; the rule moved, so move the patch", r.name, r.file, n, r.old)
	}
	return strings.Replace(src, r.old, r.new, 1), nil
}

// build makes the test binary of a package. Its path is new each time.
func (s *scratch) build(pkg string) (bin string, err error) {
	dir, err := os.MkdirTemp(s.dir, ".bin-")
	if err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "test")
	cmd := exec.Command("go", "test", "-c", "-trimpath", "-vet=off", "-ldflags=-s -w", "-o", bin, "./"+pkg)
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return bin, nil
}

// passes runs one test. A name that is no test neither passes nor fails.
func (s *scratch) passes(bin, pkg, test string) (ok bool, say string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), atMost+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run", "^"+test+"$", "-test.timeout", atMost.String(), "-test.v")
	cmd.Dir = filepath.Join(s.dir, pkg)
	out, err := cmd.CombinedOutput()
	if !bytes.Contains(out, []byte("=== RUN   "+test+"\n")) {
		return false, "", fmt.Errorf("there is no test %s in %s, or it did not get as far: %w\n%s", test, pkg, err, out)
	}
	return err == nil, string(out), nil
}
