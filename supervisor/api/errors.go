package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"procsup/handles"
	"procsup/supervisor/journal"
)

// statusOf is the HTTP status of each code; every other code is 500.
var statusOf = map[handles.Code]int{
	handles.CodeInvalid:      http.StatusBadRequest,
	handles.CodeNotFound:     http.StatusNotFound,
	handles.CodeAmbiguous:    http.StatusConflict,
	handles.CodeConflict:     http.StatusConflict,
	handles.CodeNameTaken:    http.StatusConflict,
	handles.CodeKeyConflict:  http.StatusConflict,
	handles.CodeAlreadyEnded: http.StatusConflict,
	handles.CodeFull:         http.StatusTooManyRequests,
	handles.CodeDraining:     http.StatusServiceUnavailable,
	handles.CodeStarting:     http.StatusServiceUnavailable,
	handles.CodePersistence:  http.StatusInsufficientStorage,
	handles.CodeForbidden:    http.StatusForbidden,
	handles.CodeUnsupported:  http.StatusNotImplemented,
	handles.CodeNotOwner:     http.StatusForbidden,
	handles.CodeLocked:       http.StatusLocked,
	handles.CodeBusy:         http.StatusConflict,
	handles.CodeClosed:       http.StatusGone,
	handles.CodeInboxFull:    http.StatusTooManyRequests,
	handles.CodeScope:        http.StatusConflict,
	handles.CodeTaken:        http.StatusConflict,
	handles.CodeOwed:         http.StatusConflict,
	handles.CodeConfig:       http.StatusBadRequest,
}

// A failure is an error on its way to the client: the body is a handles.Error,
// the status follows from its code.
type failure struct {
	e      handles.Error
	status int // 0 = by the code
}

func (f *failure) Error() string { return f.e.Error() }

// GetStatus makes huma answer with it.
func (f *failure) GetStatus() int {
	if f.status != 0 {
		return f.status
	}
	if s, ok := statusOf[f.e.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// fail turns any error into what crosses the socket.
func fail(err error) *failure {
	var f *failure
	var e *handles.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.As(err, &e):
		out := *e
		if err != error(e) { // keep what was wrapped around it
			out.Message = strings.TrimSuffix(err.Error(), "; "+e.Hint)
		}
		return &failure{e: out}
	case errors.Is(err, journal.ErrClosed):
		return &failure{e: handles.Error{Code: handles.CodeStarting, Message: "the daemon is going away or being replaced", Hint: "try again in a moment"}}
	}
	return &failure{e: handles.Error{Code: handles.CodeInternal, Message: err.Error()}}
}

// answer gives huma a value, or an error as a failure and never as a typed nil.
func answer[T any](v *T, err error) (*reply[T], error) {
	if err != nil {
		return nil, fail(err)
	}
	return &reply[T]{Body: v}, nil
}

type reply[T any] struct {
	Body *T
}

// write answers without huma, before or beside its operations.
func (f *failure) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	if f.status == http.StatusRequestEntityTooLarge || f.status == http.StatusRequestTimeout {
		w.Header().Set("Connection", "close") // the rest of the request is not read
	}
	w.WriteHeader(f.GetStatus())
	_ = json.NewEncoder(w).Encode(&f.e) // the client may be gone
}

// typed replaces huma's own errors by ours; it is a huma.Transformer.
func typed(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		if f, ok := v.(*failure); ok {
			return &f.e, nil
		}
		return v, nil
	}
	ctx.SetHeader("Content-Type", "application/json")
	e := &handles.Error{Code: handles.CodeInvalid, Message: m.Detail}
	if m.Status >= http.StatusInternalServerError {
		e.Code = handles.CodeInternal
	}
	var parts []string
	for i, d := range m.Errors {
		if d == nil || i == 8 {
			break
		}
		where := strings.TrimPrefix(strings.TrimPrefix(d.Location, "body."), "query.")
		if i == 0 {
			e.ID = where
		}
		if where != "" {
			where += ": "
		}
		parts = append(parts, where+d.Message)
	}
	if len(parts) > 0 {
		e.Message = strings.Join(parts, "; ")
	}
	return e, nil
}

// plainStatus makes every refusal of a request by huma a 400, as our table has it.
type plainStatus struct{ inner }

type inner = huma.Context // under another name than its method

func (c plainStatus) Unwrap() huma.Context { return c.inner }

func (c plainStatus) SetStatus(code int) {
	if code == http.StatusUnprocessableEntity || code == http.StatusUnsupportedMediaType {
		code = http.StatusBadRequest
	}
	c.inner.SetStatus(code)
}
