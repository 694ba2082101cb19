// Package ready knows what it means to be ready: conditions, how they are
// written, and how each is waited for. It decides nothing about runs.
//
// What the system tells of is waited for: files. A foreign socket tells nobody
// that it has begun to listen: it is tried, from 1 ms on, with a pause that grows
// with the time waited.
package ready

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"procsup/capture"
)

// A Kind says what a condition looks at.
type Kind string

// The kinds. Output, Notify and FD look at a run itself; the others need none.
const (
	Output Kind = "output" // a text in its output
	Notify Kind = "notify" // READY=1 of sd_notify(3)
	FD     Kind = "fd"     // a line on a descriptor, as s6 and Xvfb -displayfd write it
	TCP    Kind = "tcp"
	Unix   Kind = "unix"
	HTTP   Kind = "http"
	File   Kind = "file"
	Exec   Kind = "exec"
)

// A Cond is one condition, checked.
type Cond struct {
	Kind    Kind
	Text    string // as it was written
	Pattern string // Output
	FD      int    // FD
	Host    string // TCP, HTTP
	Port    string
	Path    string   // Unix, File: absolute, or @name; HTTP over a unix socket: the socket
	URL     *url.URL // HTTP
	Status  int      // HTTP: the status wanted, 0 = any 2xx
	Command string   // Exec
}

func (c Cond) String() string { return c.Text }

// OfRun reports whether the condition looks at a run itself, so that nothing
// else can wait for it.
func (c Cond) OfRun() bool { return c.Kind == Output || c.Kind == Notify || c.Kind == FD }

// Forms is how conditions are written, for messages.
const Forms = "output:TEXT, notify, fd:N, tcp:HOST:PORT, unix:PATH, http:URL[=STATUS], file:PATH, exec:CMD"

// Parse reads one condition. A relative path is taken from dir.
func Parse(text, dir string) (Cond, error) {
	kind, rest, has := strings.Cut(text, ":")
	c := Cond{Kind: Kind(kind), Text: text}
	if kind == "https" || kind == "http" && strings.HasPrefix(rest, "//") { // a bare URL
		c.Kind, rest = HTTP, text
	}
	var err error
	switch c.Kind {
	case Notify:
		if has {
			err = fmt.Errorf("notify takes nothing behind it")
		}
		return c, wrap(text, err)
	case Output, FD, TCP, Unix, HTTP, File, Exec:
		if rest == "" {
			return c, wrap(text, fmt.Errorf("%s: nothing behind it", kind))
		}
	default:
		return c, fmt.Errorf("%.80q is no condition (%s)", text, Forms)
	}
	if strings.IndexByte(rest, 0) >= 0 {
		return c, wrap(text, fmt.Errorf("holds a NUL byte"))
	}
	switch c.Kind {
	case Output:
		c.Pattern = rest
		if len(rest) > capture.MatchSpan {
			err = fmt.Errorf("a text of %d bytes, at most %d", len(rest), capture.MatchSpan)
		}
	case FD:
		c.FD, err = parseFD(rest)
	case TCP:
		c.Host, c.Port, err = parseHost(rest)
	case Unix:
		c.Path, err = parseSocket(rest, dir)
	case HTTP:
		err = c.parseURL(rest, dir)
	case File:
		c.Path = absolute(rest, dir)
	case Exec:
		c.Command = rest
	}
	return c, wrap(text, err)
}

func wrap(text string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("condition %.120q: %w", text, err)
}

func absolute(path, dir string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return filepath.Clean(path)
}

// maxFD is that of pgroup.Command.
const maxFD = 255

func parseFD(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 3 || n > maxFD {
		return 0, fmt.Errorf("%q is no descriptor from 3 to %d (0, 1 and 2 are stdin, stdout and stderr)", s, maxFD)
	}
	return n, nil
}

func parseHost(s string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(s)
	if err != nil {
		if _, perr := strconv.Atoi(s); perr == nil {
			return "", "", fmt.Errorf("no host; try tcp:127.0.0.1:%s", s)
		}
		return "", "", fmt.Errorf("want HOST:PORT, an IPv6 address in brackets")
	}
	if host == "" {
		return "", "", fmt.Errorf("no host; try tcp:127.0.0.1:%s", port)
	}
	if strings.ContainsAny(host, " /@") {
		return "", "", fmt.Errorf("%q is no host", host)
	}
	if strings.ContainsAny(host, ":") {
		if _, err := netip.ParseAddr(host); err != nil {
			return "", "", fmt.Errorf("%q is no IPv6 address", host)
		}
	}
	return host, port, checkPort(port)
}

func checkPort(port string) error {
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is no port from 1 to 65535", port)
	}
	return nil
}

// maxSocketPath is what fits into a socket's address with its NUL (unix(7)).
const maxSocketPath = 107

func parseSocket(s, dir string) (string, error) {
	if s[0] != '@' { // an abstract one has no directory
		s = absolute(s, dir)
	} else if s == "@" {
		return "", fmt.Errorf("an abstract socket needs a name behind @")
	}
	if len(s) > maxSocketPath {
		return "", fmt.Errorf("the path is %d bytes long, a socket's is at most %d", len(s), maxSocketPath)
	}
	return s, nil
}

// parseURL reads URL[=STATUS]. A status stands behind the whole URL; "=200" that
// belongs to the last parameter of a query is no status.
func (c *Cond) parseURL(s, dir string) error {
	s, c.Status = cutStatus(s)
	if c.Status != 0 && (c.Status < 100 || c.Status > 599) {
		return fmt.Errorf("%d is no HTTP status", c.Status)
	}
	if socket, ok := strings.CutPrefix(s, "http://unix:"); ok {
		path, rest, found := strings.Cut(socket, ":")
		if !found {
			path, rest = socket, "/"
		}
		if path == "" || rest == "" || rest[0] != '/' {
			return fmt.Errorf("want http://unix:SOCKET:/PATH")
		}
		var err error
		if c.Path, err = parseSocket(path, dir); err != nil {
			return err
		}
		s = "http://localhost" + rest
	}
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("want http://HOST[:PORT]/PATH, https:// or http://unix:SOCKET:/PATH")
	}
	if u.User != nil {
		return fmt.Errorf("a user or password in a URL is not sent; use exec:curl")
	}
	c.URL, c.Host, c.Port = u, u.Hostname(), u.Port()
	if c.Port == "" {
		c.Port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return checkPort(c.Port)
}

func cutStatus(s string) (rest string, status int) {
	i := strings.LastIndexByte(s, '=')
	if i < 0 || len(s)-i != 4 {
		return s, 0
	}
	n, err := strconv.Atoi(s[i+1:])
	if err != nil {
		return s, 0
	}
	if _, query, ok := strings.Cut(s[:i], "?"); ok {
		last := query[strings.LastIndexByte(query, '&')+1:]
		if !strings.Contains(last, "=") { // it is the value of that parameter
			return s, 0
		}
	}
	return s[:i], n
}

// MaxConds bounds the conditions of one run: with its streams and a notify socket
// the keeper takes 16 descriptors of it.
const MaxConds = 12

// ParseAll reads the conditions of a run, all of which have to hold.
func ParseAll(texts []string, dir string) ([]Cond, error) {
	if len(texts) > MaxConds {
		return nil, fmt.Errorf("%d conditions, at most %d", len(texts), MaxConds)
	}
	var out []Cond
	for _, text := range texts {
		c, err := Parse(text, dir)
		if err != nil {
			return nil, err
		}
		for _, o := range out {
			if o.Kind == c.Kind && (c.Kind == Notify || c.Kind == FD && o.FD == c.FD) {
				return nil, wrap(text, fmt.Errorf("was given before"))
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// Descriptors are the conditions for which a run gets a descriptor of its own,
// in their order: its place among what is kept for it follows from that.
func Descriptors(conds []Cond) (fds []int, notify bool) {
	for _, c := range conds {
		switch c.Kind {
		case FD:
			fds = append(fds, c.FD)
		case Notify:
			notify = true
		}
	}
	return fds, notify
}
