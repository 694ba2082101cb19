package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"procsup/cmd/procsupd/internal/lint"
)

// A vetDiagnostic is what go vet -json tells of one finding.
type vetDiagnostic struct {
	Category string `json:"category"`
	Posn     string `json:"posn"`
	End      string `json:"end"`
	Message  string `json:"message"`
	Fixes    []struct {
		Message string `json:"message"`
	} `json:"suggested_fixes"`
}

// lintPackages runs go vet with ourselves as its tool: it knows the types of
// all packages, and keeps what it found of packages that did not change.
func lintPackages(pattern string) ([]lint.Finding, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("lint %s: %w", pattern, err)
	}
	cmd := exec.Command("go", "vet", "-vettool="+self, "-json", pattern)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("lint %s: packages need the go command, which is not on PATH; name .go files instead", pattern)
	}
	if err != nil {
		return nil, fmt.Errorf("lint %s: go vet: %w\n%s", pattern, err, strings.TrimSpace(stderr.String()))
	}
	return readVet(io.MultiReader(&stdout, &stderr)) // where it goes differs between versions of go
}

// readVet reads objects of package, analyzer and findings, between comments.
func readVet(r io.Reader) (found []lint.Finding, err error) {
	all, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	for _, line := range bytes.SplitAfter(all, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("#")) {
			plain.Write(line)
		}
	}
	for dec := json.NewDecoder(&plain); ; {
		var packages map[string]map[string]json.RawMessage
		if err := dec.Decode(&packages); errors.Is(err, io.EOF) {
			return lint.Sorted(found), nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go vet says: %w", err)
		}
		for pkg, byAnalyzer := range packages {
			var list []vetDiagnostic
			if err := json.Unmarshal(byAnalyzer[lint.Analyzer.Name], &list); err != nil {
				return nil, fmt.Errorf("go vet could not check %s: %s", pkg, byAnalyzer[lint.Analyzer.Name])
			}
			for _, d := range list {
				found = append(found, d.finding())
			}
		}
	}
}

func (d vetDiagnostic) finding() lint.Finding {
	file, line, column := place(d.Posn)
	_, end, _ := place(d.End)
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, file); err == nil && !strings.HasPrefix(rel, "..") {
			file = rel
		}
	}
	var fix string
	if len(d.Fixes) > 0 {
		fix = d.Fixes[0].Message
	}
	return lint.GoFinding(file, line, column, max(line, end), d.Category, d.Message, fix)
}

// place takes file:line:column apart; on Windows a file has a colon too.
func place(s string) (file string, line, column int) {
	for _, n := range []*int{&column, &line} {
		i := strings.LastIndexByte(s, ':')
		if i < 0 {
			return s, line, column
		}
		*n, _ = strconv.Atoi(s[i+1:])
		s = s[:i]
	}
	return s, line, column
}
