package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/unitchecker"

	"procsup/cmd/procsupd/internal/lint"
	"procsup/supervisor/wire"
)

const lintVerb = "lint"

const lintUsage = "Usage: procsup lint [flags] FILE…; procsup lint --help tells more\n"

// lintFlags are the flags of procsup lint.
type lintFlags struct {
	json, sarif, fail, fix bool
	lang                   string
}

func lintMain(args []string, in io.Reader, out, errOut io.Writer) int {
	o := &lintFlags{}
	files, err := o.parse(args, errOut)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(errOut, "procsup: lint: %v; see procsup lint --help\n", err)
		return exitUsage
	}
	var found []lint.Finding
	code, read := 0, 0
	for _, file := range files {
		got, err := lintOne(file, o.lang, in)
		if err != nil {
			fmt.Fprintln(errOut, "procsup: lint: "+err.Error())
			code = exitProcsup
			continue
		}
		found, read = append(found, got...), read+1
	}
	r := lint.NewReport(read, found)
	if err := o.write(r, out); err != nil {
		fmt.Fprintf(errOut, "procsup: lint: write findings: %v\n", err)
		return exitProcsup
	}
	if code == 0 && o.fail && r.Warnings > 0 {
		code = 1
	}
	return code
}

// parse takes flags before, between and behind the files.
func (o *lintFlags) parse(args []string, out io.Writer) (files []string, err error) {
	fs := flag.NewFlagSet("lint", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.BoolVar(&o.json, "json", false, "print one JSON object")
	fs.BoolVar(&o.sarif, "sarif", false, "print SARIF 2.1.0")
	fs.BoolVar(&o.fail, "error", false, "exit 1 when there is a warning")
	fs.BoolVar(&o.fix, "fix-hint", false, "with each finding the line to write in its place")
	fs.StringVar(&o.lang, "lang", "", "read every FILE as `LANG`: "+strings.Join(lint.Languages, ", "))
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(os.Stdout)
			fmt.Fprint(os.Stdout, lintUsage)
			fs.PrintDefaults()
			return nil, err
		} else if err != nil {
			return nil, err
		}
		rest := fs.Args()
		if n := len(args) - len(rest); n > 0 && args[n-1] == "--" {
			files = append(files, rest...)
			break
		}
		if len(rest) == 0 {
			break
		}
		files, args = append(files, rest[0]), rest[1:]
	}
	switch {
	case len(files) == 0:
		return nil, errors.New("no FILE given; try: procsup lint script.sh")
	case o.json && o.sarif:
		return nil, errors.New("--json and --sarif are two forms of one output: give one")
	case o.lang != "" && !slices.Contains(lint.Languages, o.lang):
		return nil, fmt.Errorf("--lang: unknown language %q (%s)", o.lang, strings.Join(lint.Languages, ", "))
	}
	return files, nil
}

func (o *lintFlags) write(r lint.Report, out io.Writer) error {
	switch {
	case o.json:
		return r.WriteJSON(out)
	case o.sarif:
		return r.WriteSARIF(out, wire.Version)
	}
	return r.WriteText(out, o.fix)
}

func lintOne(file, lang string, in io.Reader) ([]lint.Finding, error) {
	if file == "-" {
		src, err := io.ReadAll(io.LimitReader(in, lintMost))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return lint.Check("stdin", src, lang), nil
	}
	if strings.Contains(file, "...") {
		return lintPackages(file)
	}
	st, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return nil, fmt.Errorf("%s is a directory, which is not followed: name its files, or Go packages by %s/...", file, strings.TrimSuffix(file, "/"))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, lintMost))
	if err != nil {
		return nil, err
	}
	return lint.Check(file, src, lang), nil
}

// lintMost is more than lint looks at: a longer file is refused as too long.
const lintMost = 1 << 20

// vetTool reports whether we are called as go vet calls its tool.
func vetTool(args []string) bool {
	if len(args) == 0 {
		return false
	}
	last := args[len(args)-1]
	return strings.HasPrefix(args[0], "-V=") || args[0] == "-flags" || strings.HasSuffix(last, ".cfg") && len(last) > 4
}

// vetMain checks one package for go vet -vettool; it does not return.
func vetMain() { unitchecker.Main(lint.Analyzer) }
