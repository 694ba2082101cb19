package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"procsup/handles"
	"procsup/pgroup"
	"procsup/platform"
	"procsup/supervisor/wire"
)

// maxEvents bounds what is kept of one run for a slow receiver.
const maxEvents = 1 << 16

// Leases: whether the end of a run is owed to its session.
const (
	LeaseAwaited = "awaited"
	LeaseService = "service"
)

// goodName is what a name or a session may be: it must not look like an id and
// must be usable in a shell without quotes.
var goodName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,63}$`)

// check refuses a start that can never work, before anything happens, and
// fills in defaults.
func check(req wire.Start) (wire.Start, error) {
	req.Session = canonicalSession(req.Session)
	if req.Lease == "" {
		req.Lease = LeaseAwaited
		if req.Session == DefaultSession {
			req.Lease = LeaseService
		}
	}
	if req.Dir == "" {
		req.Dir = "/"
	}
	for _, f := range []func(wire.Start) error{checkCommand, checkNames, checkNumbers, checkWords, checkReady} {
		if err := f(req); err != nil {
			return req, err
		}
	}
	return req, nil
}

// canonicalSession is the one spelling of a session, which answers carry:
// without the slashes that a caller may have put behind it.
func canonicalSession(name string) string {
	if name == "" {
		return DefaultSession
	}
	if bare := strings.TrimRight(name, "/"); bare != "" {
		return bare
	}
	return name // refused as what it is
}

func invalid(field, format string, args ...any) error {
	return &handles.Error{Code: handles.CodeInvalid, ID: field, Message: field + ": " + fmt.Sprintf(format, args...)}
}

func checkCommand(req wire.Start) error {
	if len(req.Command) == 0 || req.Command[0] == "" {
		return invalid("command", "is empty")
	}
	for i, a := range req.Command {
		if strings.IndexByte(a, 0) >= 0 {
			return invalid("command", "argument %d holds a NUL byte", i)
		}
	}
	for _, kv := range req.Env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			return invalid("env", "%.40q is not K=V", kv)
		}
		if strings.IndexByte(kv, 0) >= 0 {
			return invalid("env", "the value of %s holds a NUL byte", name)
		}
	}
	if !filepath.IsAbs(req.Dir) {
		return invalid("dir", "%s is not absolute", req.Dir)
	}
	if st, err := os.Stat(req.Dir); err != nil {
		return invalid("dir", "%v", err)
	} else if !st.IsDir() {
		return invalid("dir", "%s is not a directory", req.Dir)
	}
	return nil
}

func checkNames(req wire.Start) error {
	if !goodName.MatchString(req.Session) {
		return invalid("session", "%.80q is not a name (letters, digits and _.:@+- , at most 64)", req.Session)
	}
	if req.Name != "" && (!goodName.MatchString(req.Name) || strings.HasPrefix(req.Name, handles.CommandPrefix) || strings.HasPrefix(req.Name, handles.FilePrefix)) {
		return invalid("name", "%.80q is not a name (letters, digits and _.:@+- , at most 64, not like an id)", req.Name)
	}
	return nil
}

func checkNumbers(req wire.Start) error {
	for _, n := range []struct {
		field string
		v     int64
	}{{"deadline_ms", req.DeadlineMS}, {"no_output_ms", req.NoOutputMS}, {"max_output", req.MaxOutput}} {
		if n.v < 0 {
			return invalid(n.field, "%d is negative", n.v)
		}
	}
	for _, n := range []struct {
		field string
		v     *int64
	}{{"grace_ms", req.GraceMS}, {"background_after_ms", req.BackgroundMS}} {
		if n.v != nil && *n.v < 0 {
			return invalid(n.field, "%d is negative", *n.v)
		}
	}
	if req.Events < 0 || req.Events > maxEvents {
		return invalid("events", "%d is not from 1 to %d", req.Events, maxEvents)
	}
	if len(req.NotifyMatch) > 16 {
		return invalid("notify_match", "%d patterns, at most 16", len(req.NotifyMatch))
	}
	for _, p := range req.NotifyMatch {
		if p == "" {
			return invalid("notify_match", "a pattern is empty")
		}
	}
	if req.Umask != nil && (*req.Umask < 0 || *req.Umask > 0o777) {
		return invalid("umask", "%#o is out of range", *req.Umask)
	}
	return nil
}

func checkWords(req wire.Start) error {
	if req.Lease != LeaseAwaited && req.Lease != LeaseService {
		return invalid("lease", "%q is neither awaited nor service", req.Lease)
	}
	if _, err := pgroup.ParseLeftover(req.Leftover); err != nil {
		return invalid("leftover", "%v", err)
	}
	if _, err := pgroup.ParseLevel(req.Containment); err != nil {
		return invalid("containment", "%v", err)
	}
	if req.StopSignal != "" {
		if _, err := platform.ParseSignal(req.StopSignal); err != nil {
			return invalid("stop_signal", "%v", err)
		}
	}
	switch req.Tag {
	case "", "command", "test", "build":
	default:
		return invalid("tag", "%q is none of command, test, build", req.Tag)
	}
	switch {
	case req.Stdin == "", req.Stdin == "null", req.Stdin == "pipe", filepath.IsAbs(req.Stdin):
	default:
		return invalid("stdin", "%q is none of null, pipe or an absolute path", req.Stdin)
	}
	return nil
}

// fingerprint tells two requests apart that carry the same idempotency key. The
// order of the environment tells nothing, nor does what a shell keeps there for
// itself, which differs from one of its commands to the next.
func fingerprint(req wire.Start) string {
	req.Idempotency = ""
	req.Env = slices.DeleteFunc(slices.Clone(req.Env), func(kv string) bool {
		return strings.HasPrefix(kv, "_=") || strings.HasPrefix(kv, "SHLVL=")
	})
	slices.SortStableFunc(req.Env, func(a, b string) int { // of two of one name the last counts
		na, _, _ := strings.Cut(a, "=")
		nb, _, _ := strings.Cut(b, "=")
		return strings.Compare(na, nb)
	})
	b, _ := json.Marshal(req) // cannot fail: plain data
	return digest(b)
}
