package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"procsup/pgroup"
	"procsup/platform"
)

// options are the checked flags of `procsup run`.
type options struct {
	deadline, noOutput time.Duration // 0 = none
	ladder             pgroup.Ladder
	leftover           pgroup.Leftover
	forward, exitCode  bool
	dir                string
	env                []string // complete
	stdin              string   // inherit, null, or a path
	pty                bool
	capture            string
	merge              bool
	maxOutput          int64
	result             string
	json, quiet        bool
	containment        pgroup.Level
	events             int // 0: none are made
	eventsTo           string
	argv               []string

	outside chan string // why something else ends it; nil: nothing does
}

func parseRun(c *cli.Context) (*options, error) {
	o := &options{
		forward: c.Bool("forward"), exitCode: c.Bool("exit-code"), dir: c.String("dir"), stdin: c.String("stdin"),
		pty: c.Bool("pty"), capture: c.String("capture"), merge: c.Bool("merge"), result: c.String("result"),
		json: c.Bool("json"), quiet: c.Bool("quiet"), argv: c.Args().Slice(),
	}
	if len(o.argv) == 0 {
		return nil, usagef("run: no command given; try: procsup run -- CMD [ARG…]")
	}
	for i, a := range o.argv {
		if strings.IndexByte(a, 0) >= 0 {
			return nil, usagef("run: argument %d holds a NUL byte, which no program can receive", i)
		}
	}
	if o.argv[0] == "" {
		return nil, &exitError{code: exitNotFound, msg: "run: the command's name is empty"}
	}
	if err := o.parseTimes(c); err != nil {
		return nil, err
	}
	var err error
	if o.leftover, err = pgroup.ParseLeftover(c.String("leftover")); err != nil {
		return nil, usagef("run: --leftover: %v", err)
	}
	if o.containment, err = pgroup.ParseLevel(c.String("containment")); err != nil {
		return nil, usagef("run: --containment: %v", err)
	}
	if o.maxOutput, err = parseSize(c.String("max-output")); err != nil {
		return nil, usagef("run: --max-output: %v", err)
	}
	if o.env, err = environment(os.Environ(), c.String("env-mode"), c.StringSlice("env")); err != nil {
		return nil, usagef("run: %v", err)
	}
	if err := o.parseEvents(c); err != nil {
		return nil, err
	}
	if o.pty && o.stdin != "inherit" {
		return nil, usagef("run: --pty gives the command a terminal as stdin; it cannot be combined with --stdin")
	}
	if !c.IsSet("forward") && os.Getpid() == 1 {
		o.forward = true
	}
	return o, o.checkDir()
}

func (o *options) parseTimes(c *cli.Context) error {
	for _, f := range []struct {
		name string
		to   *time.Duration
	}{{"deadline", &o.deadline}, {"no-output-timeout", &o.noOutput}, {"grace", &o.ladder.Grace}} {
		if !c.IsSet(f.name) && f.name != "grace" {
			continue
		}
		d, err := parseDuration(c.String(f.name))
		if err != nil {
			return usagef("run: --%s: %v", f.name, err)
		}
		*f.to = d
	}
	if o.ladder.Grace == 0 {
		o.ladder.Grace = -1 // the user said none
	}
	sig, err := platform.ParseSignal(c.String("stop-signal"))
	if err != nil {
		return usagef("run: --stop-signal: %v", err)
	}
	if name := platform.SignalName(sig); name == "STOP" || name == "CONT" || name == "CHLD" {
		return usagef("run: --stop-signal: %s does not ask a program to end", name)
	}
	o.ladder.Signal = sig
	return nil
}

func (o *options) parseEvents(c *cli.Context) error {
	if !c.IsSet("events") && !c.IsSet("events-to") {
		return nil
	}
	o.events, o.eventsTo = c.Int("events"), c.String("events-to")
	switch {
	case o.events < 1 || o.events > 1<<16:
		return usagef("run: --events: %d is not from 1 to %d", o.events, 1<<16)
	case c.IsSet("events-to") && o.eventsTo == "":
		return usagef("run: --events-to: the path is empty")
	case o.pty:
		return usagef("run: --events is not for --pty")
	}
	return nil
}

func (o *options) checkDir() error {
	if o.dir == "" {
		return nil
	}
	st, err := os.Stat(o.dir)
	if err != nil {
		return unusable("run: --dir %s: %v", o.dir, reason(err))
	}
	if !st.IsDir() {
		return unusable("run: --dir %s: not a directory", o.dir)
	}
	return nil
}

// reason is the bare cause of a path error.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// captures reports whether output goes through procsup.
func (o *options) captures() bool {
	return o.capture != "" || o.json || o.noOutput > 0 || o.events > 0
}

// parseDuration reads a Go duration, or a plain number of seconds.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		n, nerr := strconv.ParseFloat(s, 64)
		if nerr != nil || math.IsNaN(n) || math.Abs(n) > math.MaxInt64/1e9 {
			return 0, fmt.Errorf("%q is not a duration (such as 500ms, 90s, 10m, 1h30m, or a number of seconds)", s)
		}
		d = time.Duration(n * float64(time.Second))
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return d, nil
}

// parseSize reads bytes with an optional K, M, G or T (powers of 1024).
func parseSize(s string) (int64, error) {
	bad := fmt.Errorf("%q is not a size (such as 500K, 10M, 1G)", s)
	n := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s)), "B"), "I")
	shift := 0
	if n != "" {
		if i := strings.IndexByte("KMGT", n[len(n)-1]); i >= 0 {
			shift, n = 10*(i+1), n[:len(n)-1]
		}
	}
	v, err := strconv.ParseInt(n, 10, 64)
	if err != nil || v <= 0 || v > math.MaxInt64>>shift {
		return 0, bad
	}
	return v << shift, nil
}

// minimalEnv is what --env-mode minimal keeps, besides LC_*.
var minimalEnv = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", sessionVar, tokenVar}

// environment builds the command's environment. A later value of one name
// wins.
func environment(inherited []string, mode string, set []string) ([]string, error) {
	var env []string
	switch mode {
	case "inherit":
		env = slices.Clone(inherited)
	case "minimal":
		for _, kv := range inherited {
			name, _, _ := strings.Cut(kv, "=")
			if slices.Contains(minimalEnv, name) || strings.HasPrefix(name, "LC_") {
				env = append(env, kv)
			}
		}
	case "empty":
	default:
		return nil, fmt.Errorf("--env-mode: unknown mode %q (inherit, minimal, empty)", mode)
	}
	for _, kv := range set {
		name, _, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
			return nil, fmt.Errorf("--env %q: no '=' in it (want K=V)", kv)
		case name == "":
			return nil, fmt.Errorf("--env %q: the name is empty", kv)
		case strings.IndexByte(kv, 0) >= 0:
			return nil, fmt.Errorf("--env %s: the value holds a NUL byte", name)
		}
		env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		env = append(env, kv)
	}
	return env, nil
}
