package api

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
)

// lastAnswer is for the operation after which this process may be gone at once:
// what was asked of it is passed on when the whole answer is with the client's
// side of the socket, and not before.
func (d *Door) lastAnswer(w http.ResponseWriter, r *http.Request) {
	var asked *Request
	a := &wholeAnswer{ResponseWriter: w, status: http.StatusOK}
	d.mux.ServeHTTP(a, r.WithContext(context.WithValue(r.Context(), leaving{}, &asked)))
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len())) // or Flush would leave the end of it out
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client may be gone
	_ = http.NewResponseController(w).Flush()
	if asked == nil {
		return
	}
	d.pass(*asked)
}

// pass is what the process that serves gets to know. One request is pending at
// most: an end takes the place of a replacement.
func (d *Door) pass(asked Request) {
	select {
	case d.requests <- asked:
		return
	default:
	}
	if asked.Replace {
		return
	}
	select {
	case <-d.requests:
	default:
	}
	select {
	case d.requests <- asked:
	default: // of somebody who wants the end too
	}
}

type leaving struct{}

// afterAnswer makes lastAnswer pass a request on.
func afterAnswer(ctx context.Context, req Request) {
	if asked, ok := ctx.Value(leaving{}).(**Request); ok {
		*asked = &req
	}
}

// A wholeAnswer keeps an answer until it is complete.
type wholeAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (a *wholeAnswer) WriteHeader(status int)      { a.status = status }
func (a *wholeAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }
