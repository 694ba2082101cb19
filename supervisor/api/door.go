// Package api is a supervisor as an http.Handler: JSON over a unix socket, raw
// bytes for output, OpenAPI 3.1 at /v1/openapi.json. It decides nothing.
package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// A Backend is what answers: a *supervisor.Supervisor.
type Backend interface {
	Hello(ctx context.Context) (*wire.Hello, error)
	Start(ctx context.Context, req wire.Start) (*wire.Started, error)
	Wait(ctx context.Context, ref, session string, timeout time.Duration) (*wire.Waited, error)
	WaitOutput(ctx context.Context, ref, session string, req wire.WaitOutput) (*wire.OutputWaited, error)
	WaitReady(ctx context.Context, ref, session string, timeout time.Duration) (*wire.ReadyWaited, error)
	Cancel(ctx context.Context, ref, session string, req wire.Cancel) (*wire.Cancelled, error)
	Restart(ctx context.Context, ref, session string, req wire.Cancel) (*wire.Started, error)
	Signal(ctx context.Context, ref, session string, req wire.Signal) (*handles.Record, error)
	Send(ctx context.Context, ref, session string, data []byte, closeAfter bool) (*handles.Record, error)
	Show(ctx context.Context, ref, session string) (*handles.Record, error)
	List(ctx context.Context, f journal.Filter) (*wire.List, error)
	Journal(ctx context.Context, after int64, ref string, limit int) ([]wire.JournalEntry, error)
	CheckJournal(ctx context.Context) (journal.Report, error)
	Index(ctx context.Context, ref, session string) ([]capture.Record, error)
	CancelTake(ctx context.Context, ref, session string, req wire.Cancel, who supervisor.Caller) (*wire.Cancelled, error)
	StartTake(ctx context.Context, req wire.Start, who supervisor.Caller) (*wire.Started, error)
	WaitTake(ctx context.Context, ref, session string, timeout time.Duration, who supervisor.Caller) (*wire.Waited, error)
	OpenSession(ctx context.Context, req wire.OpenSession, who supervisor.Caller) (*handles.Session, error)
	Attach(ctx context.Context, req wire.OpenSession, who supervisor.Caller, opened func(*handles.Session) error) error
	Sessions(ctx context.Context, all bool) (*wire.SessionList, error)
	Session(ctx context.Context, name string) (*handles.Session, error)
	CloseSession(ctx context.Context, name string, req wire.EndSession, who supervisor.Caller) (*wire.SessionReport, error)
	ClearSession(ctx context.Context, name string, req wire.EndSession, who supervisor.Caller) (*wire.SessionReport, error)
	ResetSession(ctx context.Context, name string, req wire.EndSession, who supervisor.Caller) (*wire.SessionReport, error)
	ShutdownSession(ctx context.Context, name string, req wire.EndSession, who supervisor.Caller) (*wire.SessionReport, error)
	DeleteSession(ctx context.Context, name string, req wire.EndSession, who supervisor.Caller) (*wire.SessionReport, error)
	MayStop(who supervisor.Caller) error
	ShutdownAll(ctx context.Context, req wire.Shutdown) (*wire.DaemonReport, error)
	OpenScope(ctx context.Context, name string, req handles.Scope) (*handles.Scope, error)
	Scopes(ctx context.Context, name string) (*wire.Scopes, error)
	CancelScope(ctx context.Context, name, scope string, req wire.EndSession) (*wire.ScopeReport, error)
	Pending(ctx context.Context, name string, items bool) (*wire.Pending, error)
	Take(ctx context.Context, name string, req wire.Take, who supervisor.Caller) (*wire.Batch, error)
	Acknowledge(ctx context.Context, name string, req wire.Acknowledge) (*wire.Acknowledged, error)
	Deliveries(ctx context.Context, name string, limit int) (*wire.Deliveries, error)
	Idle(ctx context.Context, name string, wait time.Duration, expect []handles.ID) (*wire.Idle, error)
	Notices(ctx context.Context, name string, since int64, each func(wire.Notice) error) error
	Events(ctx context.Context, ref, session string, take bool, each func(wire.Event) error) error
	Run(ctx context.Context, req wire.Start, who supervisor.Caller, started func(*wire.Started) error) (*handles.Record, error)
	Output(ctx context.Context, ref, session string, want supervisor.OutputRange, w io.Writer, gap func(capture.Range)) error
}

var _ Backend = (*supervisor.Supervisor)(nil)

// Limits of what a client may send.
const (
	maxBody  = 16 << 20         // arguments and environment are at most 6 MiB for the kernel, execve(2)
	bodyTime = 10 * time.Second // to send all of it
)

// A Request asks the process that serves to go away.
type Request struct {
	Replace bool   // for a successor; commands live on
	Exe     string // the successor's binary, "" = the same path
}

// A Door is the handler. Until it is opened every operation answers
// handles.ErrStarting. It serves only connections made through ConnContext.
type Door struct {
	mux      *http.ServeMux
	backend  atomic.Pointer[Backend]
	requests chan Request
	bodyTime time.Duration // tests have less of it
	left     context.Context
	leave    context.CancelFunc
}

// NewDoor makes a door that is still closed.
func NewDoor() *Door {
	d := &Door{requests: make(chan Request, 1), bodyTime: bodyTime}
	d.left, d.leave = context.WithCancel(context.Background())
	d.mux, _ = routes(d)
	return d
}

// New makes a door that is open.
func New(s Backend) *Door {
	d := NewDoor()
	d.Open(s)
	return d
}

// Open lets clients in.
func (d *Door) Open(s Backend) { d.backend.Store(&s) }

// Leave ends the answers that go on, so that a server can be shut down which
// waits for answers under way.
func (d *Door) Leave() { d.leave() }

// Requests tells when a client asks for the end, or for a successor, of the
// process that serves.
func (d *Door) Requests() <-chan Request { return d.requests }

// server is the backend, once there is one.
func (d *Door) server() (Backend, error) {
	if b := d.backend.Load(); b != nil {
		return *b, nil
	}
	return nil, &failure{e: handles.Error{Code: handles.CodeStarting, Message: "the daemon is starting: it still reads its journal", Hint: "try again in a moment"}}
}

// ServeHTTP checks who asks and what is sent before anything is done.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := admit(r)
	if f == nil {
		f = whole(w, r, d.bodyTime)
	}
	if f == nil {
		f = d.known(w, r)
	}
	if f != nil {
		f.write(w)
		return
	}
	if r.URL.Path == wire.PathShutdown {
		d.lastAnswer(w, r)
		return
	}
	d.mux.ServeHTTP(w, r)
}

// known answers for paths and methods that do not exist.
func (d *Door) known(w http.ResponseWriter, r *http.Request) *failure {
	escaped := r.URL.EscapedPath()
	clean := path.Clean(escaped) == escaped // the mux would redirect
	if _, pattern := d.mux.Handler(r); pattern != "" && clean {
		return nil
	}
	f := &failure{e: handles.Error{
		Code:    handles.CodeUnsupported,
		Message: fmt.Sprintf("there is no operation %s %.200s in version %d of this API", r.Method, r.URL.Path, wire.Protocol),
		Hint:    "GET " + wire.PathOpenAPI + " lists them",
	}, status: http.StatusNotFound}
	var allow []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, pattern := d.mux.Handler(&other); pattern != "" && clean {
			allow = append(allow, method)
		}
	}
	if allow != nil {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		f.status = http.StatusMethodNotAllowed
	}
	return f
}

// whole reads the body, so that what follows sees all of it or nothing, and so
// that the server notices from now on when the client goes away.
func whole(w http.ResponseWriter, r *http.Request, atMost time.Duration) *failure {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	if r.ContentLength > maxBody {
		return tooLarge()
	}
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Now().Add(atMost))
	b, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	_ = ctl.SetReadDeadline(time.Time{})
	var ne net.Error
	switch {
	case len(b) > maxBody:
		return tooLarge()
	case errors.As(err, &ne) && ne.Timeout():
		return invalid(http.StatusRequestTimeout, "the request was not sent within %v", atMost)
	case err != nil:
		return invalid(http.StatusBadRequest, "the request is cut short: %v", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(b))
	if ct := r.Header.Get("Content-Type"); ct == "" || strings.HasPrefix(ct, "application/x-www-form-urlencoded") {
		r.Header.Set("Content-Type", "application/json") // what curl -d says of any data
	}
	return nil
}

func tooLarge() *failure {
	return invalid(http.StatusRequestEntityTooLarge, "the request is larger than %d MiB", maxBody>>20)
}

func invalid(status int, format string, args ...any) *failure {
	return &failure{e: handles.Error{Code: handles.CodeInvalid, Message: fmt.Sprintf(format, args...)}, status: status}
}
