package main

import (
	"context"
	"fmt"
	"os"
	"regexp"

	"github.com/urfave/cli/v2"

	"procsup/supervisor/wire"
)

const waitOutputHelp = `Waits until the output of HANDLE has PATTERN in it, from its beginning or from
--from on. PATTERN is literal text, or with --regex an RE2 expression; it is
looked for in the text without ANSI escapes and carriage returns, or with --raw
in the bytes as they are. A newline is not needed.

Exit codes: 0 matched · 65 ended before the match · 75 not within the timeout ·
66 no such handle · 69 no daemon · 64 usage. Matched text is printed.

Examples:
   procsup wait-output $h 'Ready to accept connections' --timeout 10s
   procsup wait-output $h --regex 'listening on port (\d+)' --source stderr
   procsup wait-output $h --json ready | jq .from`

func waitOutputCommand() *cli.Command {
	return verb("wait-output", "wait until the output matches", "HANDLE PATTERN", waitOutputHelp, doWaitOutput,
		&cli.BoolFlag{Name: "regex", Usage: "PATTERN is an RE2 expression"},
		&cli.BoolFlag{Name: "raw", Usage: "match the bytes as they are"},
		&cli.StringFlag{Name: "source", Usage: "only `stdout` or stderr (default: both)"},
		&cli.Int64Flag{Name: "from", Usage: "begin at this `OFFSET`"},
		&cli.StringFlag{Name: "timeout", Usage: "at most `D`, then exit 75 (0 = only look)"},
	)
}

func doWaitOutput(c *cli.Context, r *remote) error {
	req := wire.WaitOutput{Regex: c.Bool("regex"), Raw: c.Bool("raw"), Source: c.String("source"), From: c.Int64("from")}
	if c.NArg() != 2 || c.Args().Get(1) == "" {
		return usagef("wait-output: a handle and a pattern are needed, not %q", c.Args().Slice())
	}
	ref := c.Args().First()
	req.Pattern = c.Args().Get(1)
	if err := checkSource("wait-output", req.Source); err != nil {
		return err
	}
	if req.From < 0 {
		return usagef("wait-output: --from: %d is negative", req.From)
	}
	if req.Regex {
		if _, err := regexp.Compile(req.Pattern); err != nil {
			return usagef("wait-output: --regex: %v", err)
		}
	}
	ms, err := millisFlag(c, "timeout")
	if err != nil {
		return err
	}
	if ms != nil {
		req.TimeoutMS = max(*ms, 1) // 0 would be for ever
	}
	var w *wire.OutputWaited
	defer waiting(os.Stderr, ref+" to write "+req.Pattern)()
	if err := r.do(func() (err error) { w, err = r.WaitOutput(context.Background(), ref, req); return err }); err != nil {
		return err
	}
	if c.Bool("json") {
		if err := printJSON(c, w); err != nil {
			return err
		}
	}
	switch w.Status {
	case wire.Matched:
		if !c.Bool("json") && w.Text != "" {
			fmt.Fprintln(c.App.Writer, w.Text)
		}
		return nil
	case wire.Exited:
		return &exitError{code: exitNoMatch, msg: fmt.Sprintf("wait-output: %s is %s and did not write %q", ref, outcomeText(w.Record), req.Pattern)}
	}
	return &exitError{code: exitTimedOut, msg: fmt.Sprintf("wait-output: %s is %s and has not written %q so far", ref, outcomeText(w.Record), req.Pattern)}
}

func checkSource(verb, source string) error {
	switch source {
	case "", "stdout", "stderr":
		return nil
	}
	return usagef("%s: --source: %q is neither stdout nor stderr", verb, source)
}
