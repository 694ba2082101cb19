package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"procsup/platform"
	"procsup/supervisor"
	"procsup/supervisor/wire"
)

// A From is what a request says of its caller besides the connection.
type From struct {
	Token  string `header:"Procsup-Token" doc:"of the session that the caller runs in; hygiene, not a wall"`
	Reader string `header:"Procsup-Reader" doc:"tells two readers of an inbox apart that are one process"`
}

// caller is who asks, as the kernel said when it connected.
func (f From) caller(ctx context.Context) supervisor.Caller {
	c := supervisor.Caller{Token: f.Token, Reader: f.Reader}
	if p, ok := ctx.Value(peerKey{}).(peer); ok && p.cred.PID > 0 {
		c.Process, _ = platform.Identify(p.cred.PID) // gone, or not to be seen: nothing is known of it
	}
	return c
}

// lines answers with a stream of JSON values as they come. What goes wrong
// before the first is answered as an error; later the connection is broken off.
func (d *Door) lines(media string, frame func(any) []byte, produce func(ctx context.Context, each func(any) error) error) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		ctl := http.NewResponseController(w)
		begun := false
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(d.left, cancel)()
		err := produce(ctx, func(v any) error {
			if !begun {
				w.Header().Set("Content-Type", media)
				w.Header().Set("Cache-Control", "no-store")
				begun = true
			}
			if _, err := w.Write(frame(v)); err != nil {
				return err
			}
			return ctl.Flush()
		})
		switch {
		case err == nil:
		case !begun:
			fail(err).write(w)
		default:
			panic(http.ErrAbortHandler)
		}
	}}
}

// jsonLine is one value on a line of its own.
func jsonLine(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("marshal answer: " + err.Error()) // plain data
	}
	return append(b, '\n')
}

const ndjson, eventStream = "application/x-ndjson", "text/event-stream"

// sent is one event of a stream, html.spec.whatwg.org/multipage/server-sent-events.html.
func sent(v any) []byte {
	b := []byte("data: ")
	if n, ok := v.(wire.Notice); ok && n.Seq > 0 {
		b = append([]byte("id: "+itoa(n.Seq)+"\n"), b...)
	}
	return append(append(b, jsonLine(v)...), '\n')
}
