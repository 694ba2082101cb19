package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/urfave/cli/v2"

	"procsup/capture"
	"procsup/handles"
)

const logsHelp = `Prints what HANDLE wrote: both streams in the order written, to a millisecond,
or with --source one of them, byte for byte. It goes on while nothing more comes
only with -f, until the handle has ended; the daemon may restart meanwhile. What
was not kept (--max-output) is named on stderr where it would have been.

--view lines keeps the last state of lines that were rewritten with carriage
returns, such as progress bars. --timestamps puts before each line when it was
written, or with -f when it arrived.

Exit codes: 0 · 66 no such handle · 69 no daemon · 64 usage.

Examples:
   procsup logs $h
   procsup logs $h -f --tail 20
   procsup logs $h --source stderr --from 4096 >more
   procsup logs $h --from -1000
   procsup logs $h --max-bytes 10K --view lines --strip-ansi`

func logsCommand() *cli.Command {
	return verb("logs", "print the output of a handle", "HANDLE", logsHelp, doLogs,
		&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until it has ended"},
		&cli.StringFlag{Name: "source", Usage: "only `stdout` or stderr (default: both in the order written)"},
		&cli.StringFlag{Name: "from", Aliases: []string{"from-offset"}, Usage: "begin at this `OFFSET` of stdout or of --source; negative: so many bytes before the end"},
		&cli.IntFlag{Name: "tail", Aliases: []string{"limit"}, Usage: "only the last `N` lines"},
		&cli.StringFlag{Name: "max-bytes", Usage: "at most `SIZE`: the beginning and the end"},
		&cli.BoolFlag{Name: "timestamps", Aliases: []string{"t"}, Usage: "put the time before each line"},
		&cli.StringFlag{Name: "view", Usage: "`raw` or lines", Value: "raw"},
		&cli.BoolFlag{Name: "strip-ansi", Usage: "take escapes and carriage returns out"},
	)
}

// logsOptions are the checked flags of logs.
type logsOptions struct {
	ref        string
	follow     bool
	sources    []string // in effect, once the record is known
	source     string   // as asked for
	from       int64
	tail       int // -1 = all lines
	maxBytes   int64
	timestamps bool
	lines      bool
	strip      bool
}

func parseLogs(c *cli.Context) (*logsOptions, error) {
	ref, err := oneHandle(c)
	if err != nil {
		return nil, err
	}
	o := &logsOptions{
		ref: ref, follow: c.Bool("follow"), source: c.String("source"), tail: -1,
		timestamps: c.Bool("timestamps"), strip: c.Bool("strip-ansi"), lines: c.String("view") == "lines",
	}
	if err := checkSource("logs", o.source); err != nil {
		return nil, err
	}
	if v := c.String("view"); v != "lines" && v != "raw" {
		return nil, usagef("logs: --view: %q is neither raw nor lines", v)
	}
	if s := c.String("from"); s != "" {
		if o.from, err = strconv.ParseInt(s, 10, 64); err != nil {
			return nil, usagef("logs: --from: %q is not an offset", s)
		}
		if o.source == "" {
			o.source = "stdout" // each stream has offsets of its own
		}
	}
	if c.IsSet("tail") {
		if o.tail = c.Int("tail"); o.tail < 0 {
			return nil, usagef("logs: --tail: %d is negative", o.tail)
		}
	}
	if s := c.String("max-bytes"); s != "" {
		if o.maxBytes, err = parseSize(s); err != nil {
			return nil, usagef("logs: --max-bytes: %v", err)
		}
	}
	switch {
	case o.from != 0 && o.tail >= 0:
		return nil, usagef("logs: --from and --tail exclude each other")
	case o.maxBytes > 0 && o.follow:
		return nil, usagef("logs: --max-bytes and --follow exclude each other")
	case c.Bool("json"):
		return nil, usagef("logs: output is bytes, not JSON; procsup show --json has paths and counts")
	}
	return o, nil
}

func doLogs(c *cli.Context, r *remote) error {
	o, err := parseLogs(c)
	if err != nil {
		return err
	}
	var rec *handles.Record
	if err := r.do(func() (err error) { rec, err = r.Show(context.Background(), o.ref); return err }); err != nil {
		return err
	}
	o.ref = string(rec.HandleID) // a name may come to mean another
	if o.source != "" {
		o.sources = []string{o.source}
	} else if o.sources = []string{"stdout", "stderr"}; rec.Output != nil && rec.Output.Stderr == nil {
		o.sources = o.sources[:1]
	}
	view := newLogView(o, c.App.Writer, c.App.ErrWriter)
	if err := readLogs(r, o, view); err != nil {
		var w *writeError
		if errors.As(err, &w) {
			return unusable("logs: write: %v", w.err)
		}
		return r.explain(err)
	}
	return view.end()
}

// writeError is a failure of our own output, as against the daemon's.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }

// A filter is what is done to the bytes of one stream on their way.
type filter struct {
	strip *capture.Strip
	lines *capture.Lines
	buf   []byte
}

func newFilter(o *logsOptions) *filter {
	f := &filter{}
	if o.strip {
		f.strip = &capture.Strip{}
	}
	if o.lines {
		f.lines = &capture.Lines{}
	}
	return f
}

// pass returns what becomes of b, valid until the next call.
func (f *filter) pass(b []byte) []byte {
	if f.lines != nil {
		f.buf = f.lines.Append(f.buf[:0], b)
		b = f.buf
	}
	if f.strip != nil {
		return f.strip.Append(nil, b)
	}
	return b
}

// flush returns what was held back.
func (f *filter) flush() []byte {
	if f.lines == nil {
		return nil
	}
	b := f.lines.Flush(nil)
	if f.strip != nil {
		b = f.strip.Append(nil, b)
	}
	return b
}

func sayGap(w io.Writer, source string, g handles.Range) {
	fmt.Fprintf(w, "procsup: %d bytes of %s are omitted here (%d to %d)\n", g.To-g.From, source, g.From, g.To)
}
