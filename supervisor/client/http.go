package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"procsup/supervisor/wire"
)

// Limits of what is read of an answer before its body.
const (
	maxLine    = 16 << 10
	maxHeaders = 100
	maxJSON    = 512 << 20 // a list of 100,000 records is some 200 MB
)

// errMalformed is an answer that is not HTTP/1.1 as our daemon speaks it. What
// is on the connection cannot be trusted any more.
var errMalformed = errors.New("malformed answer")

// A request is one call. Nothing in it needs escaping any more.
type request struct {
	method string
	target string // path and query
	kind   string // Content-Type, "" = no body
	body   []byte
	token  string // of the session that the caller runs in, "" = none
	reader string // see wire.HeaderReader, "" = none
}

// bytes is the request as it goes over the socket. The daemon is at the other
// end of a unix socket: the host is only there because HTTP/1.1 wants one.
func (r request) bytes() []byte {
	b := make([]byte, 0, 160+len(r.target)+len(r.body))
	b = append(b, r.method+" "+r.target+" HTTP/1.1\r\nHost: procsup\r\n"...)
	if r.kind != "" {
		b = append(b, "Content-Type: "+r.kind+"\r\nContent-Length: "+strconv.Itoa(len(r.body))+"\r\n"...)
	}
	for _, h := range [][2]string{{wire.HeaderToken, r.token}, {wire.HeaderReader, r.reader}} {
		if h[1] != "" {
			b = append(b, h[0]+": "+h[1]+"\r\n"...)
		}
	}
	b = append(b, "\r\n"...)
	return append(b, r.body...)
}

// A response is the head of an answer, and its body while it is read.
type response struct {
	status  int
	reason  string
	header  map[string]string // names in lower case
	trailer map[string]string // known once body has returned io.EOF
	body    io.Reader
	close   bool // the server ends the connection after it
}

// readResponse reads the head of an answer. It is strict: what our daemon never
// sends is an error.
func readResponse(r *bufio.Reader) (*response, error) {
	for {
		p := &response{}
		if err := p.readStatus(r); err != nil {
			return nil, err
		}
		var err error
		if p.header, err = readHeaders(r); err != nil {
			return nil, err
		}
		if p.status == 100 || p.status == 102 || p.status == 103 {
			continue // informational: the answer follows
		}
		return p, p.frame(r)
	}
}

func (p *response) readStatus(r *bufio.Reader) error {
	line, err := readLine(r)
	if err != nil {
		return err
	}
	version, rest, _ := strings.Cut(line, " ")
	code, reason, _ := strings.Cut(rest, " ")
	p.status, err = strconv.Atoi(code)
	if version != "HTTP/1.1" || len(code) != 3 || err != nil || p.status < 100 {
		return fmt.Errorf("%w: status line %.60q", errMalformed, line)
	}
	p.reason = reason
	return nil
}

// frame finds out where the body ends.
func (p *response) frame(r *bufio.Reader) error {
	p.close = hasToken(p.header["connection"], "close")
	length, sized := p.header["content-length"]
	coding, coded := p.header["transfer-encoding"]
	switch {
	case p.status == 204 || p.status == 304:
		p.body = strings.NewReader("")
	case p.status < 200:
		return fmt.Errorf("%w: status %d", errMalformed, p.status)
	case sized && coded:
		return fmt.Errorf("%w: both a length and a coding", errMalformed)
	case coded:
		if !strings.EqualFold(coding, "chunked") {
			return fmt.Errorf("%w: transfer coding %.60q", errMalformed, coding)
		}
		p.body = &chunks{r: r, p: p}
	case sized:
		n, err := strconv.ParseUint(length, 10, 62)
		if err != nil {
			return fmt.Errorf("%w: length %.60q", errMalformed, length)
		}
		p.body = &fixed{r: r, left: int64(n)}
	default:
		return fmt.Errorf("%w: a body without a length", errMalformed)
	}
	return nil
}

func hasToken(list, token string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// readLine reads up to CRLF and returns what is before it.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return "", fmt.Errorf("%w: a line of more than %d bytes", errMalformed, maxLine)
		case err == nil:
			s, ok := strings.CutSuffix(string(line), "\r\n")
			if !ok || strings.ContainsFunc(s, isControl) {
				return "", fmt.Errorf("%w: line %.60q", errMalformed, line)
			}
			return s, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return "", io.ErrUnexpectedEOF
		default:
			return "", err
		}
	}
}

// isControl reports a character that may be in no line, RFC 9110 section 5.5.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// readHeaders reads fields up to the empty line.
func readHeaders(r *bufio.Reader) (map[string]string, error) {
	h := map[string]string{}
	for n := 0; ; n++ {
		line, err := readLine(r)
		if err != nil {
			return nil, unexpected(err)
		}
		if line == "" {
			return h, nil
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) || n >= maxHeaders {
			return nil, fmt.Errorf("%w: header %.60q", errMalformed, line)
		}
		name, value = strings.ToLower(name), strings.Trim(value, " \t")
		if old, dup := h[name]; dup {
			if name == "content-length" || name == "transfer-encoding" {
				return nil, fmt.Errorf("%w: %s twice", errMalformed, name)
			}
			value = old + ", " + value
		}
		h[name] = value
	}
}

// isToken reports whether s can be the name of a field, RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}

// fixed is a body of a known length.
type fixed struct {
	r    *bufio.Reader
	left int64
}

func (f *fixed) Read(b []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n, err := f.r.Read(b[:min(int64(len(b)), f.left)])
	f.left -= int64(n)
	return n, unexpected(err)
}

// chunks is a body in chunks, RFC 9112 section 7.1.
type chunks struct {
	r    *bufio.Reader
	p    *response
	left int64
	any  bool
	err  error
}

func (c *chunks) Read(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.left == 0 {
		if c.err = c.next(); c.err != nil {
			return 0, c.err
		}
	}
	n, err := c.r.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	c.err = unexpected(err)
	return n, c.err
}

// next begins a chunk, or ends the body with io.EOF and its trailers.
func (c *chunks) next() error {
	if c.any {
		line, err := readLine(c.r)
		if err != nil {
			return unexpected(err)
		}
		if line != "" {
			return fmt.Errorf("%w: a chunk is longer than it says", errMalformed)
		}
	}
	line, err := readLine(c.r)
	if err != nil {
		return unexpected(err)
	}
	size, _, _ := strings.Cut(line, ";")
	n, err := strconv.ParseUint(strings.TrimRight(size, " \t"), 16, 63)
	if err != nil || n > math.MaxInt64 || len(size) > 16 {
		return fmt.Errorf("%w: chunk size %.60q", errMalformed, line)
	}
	if n > 0 {
		c.any, c.left = true, int64(n)
		return nil
	}
	if c.p.trailer, err = readHeaders(c.r); err != nil {
		return err
	}
	return io.EOF
}

// unexpected makes the end of the connection an error inside a message.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
