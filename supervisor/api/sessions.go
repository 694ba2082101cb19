package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"procsup/handles"
	"procsup/supervisor"
	"procsup/supervisor/wire"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Of names a session.
type Of struct {
	S string `path:"s" doc:"name of a session; default is the one of whoever names none"`
}

// sessions registers what is done with sessions themselves.
func (d *Door) sessions(a huma.API) {
	huma.Register(a, post(a, wire.PathSessions, "session_open", "Open a session, or get the open one of that name"),
		func(ctx context.Context, in *struct {
			From
			Body *wire.OpenSession
		}) (*reply[handles.Session], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.OpenSession(ctx, or(in.Body), in.caller(ctx)))
		})
	huma.Register(a, get(a, wire.PathSessions, "session_list", "Sessions by name"),
		func(ctx context.Context, in *struct {
			All bool `query:"all" doc:"closed ones too"`
		}) (*reply[wire.SessionList], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Sessions(ctx, in.All))
		})
	huma.Register(a, get(a, wire.PathSession, "session_show", "One session"),
		func(ctx context.Context, in *Of) (*reply[handles.Session], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Session(ctx, in.S))
		})
	d.endings(a)
	d.scopes(a)
}

// endings registers the ways in which the work of a session ends.
func (d *Door) endings(a huma.API) {
	type end func(Backend, context.Context, string, wire.EndSession, supervisor.Caller) (*wire.SessionReport, error)
	for _, o := range []struct {
		method, path, id, summary string
		do                        end
	}{
		{http.MethodPost, wire.PathSessionClose, "session_close", "End all work of a session and close it; what is owed is dropped", Backend.CloseSession},
		{http.MethodPost, wire.PathSessionClear, "session_clear", "End all work of a session; what is owed is dropped", Backend.ClearSession},
		{http.MethodPost, wire.PathSessionReset, "session_reset", "Clear a session and begin its next generation", Backend.ResetSession},
		{http.MethodPost, wire.PathSessionShutdown, "session_shutdown", "Close a session within a bound; refused while its parent run is active", Backend.ShutdownSession},
		{http.MethodDelete, wire.PathSession, "session_delete", "Close a session and forget it; only for who opened it, from within or outside", Backend.DeleteSession},
	} {
		huma.Register(a, op(a, o.method, o.path, o.id, o.summary),
			func(ctx context.Context, in *struct {
				From
				Of
				Body *wire.EndSession
			}) (*reply[wire.SessionReport], error) {
				s, err := d.server()
				if err != nil {
					return nil, err
				}
				return answer(o.do(s, ctx, in.S, or(in.Body), in.caller(ctx)))
			})
	}
}

func (d *Door) scopes(a huma.API) {
	huma.Register(a, post(a, wire.PathScopes, "scope_open", "Open a scope: one token to cancel several runs by"),
		func(ctx context.Context, in *struct {
			Of
			Body handles.Scope
		}) (*reply[handles.Scope], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.OpenScope(ctx, in.S, in.Body))
		})
	huma.Register(a, get(a, wire.PathScopes, "scope_list", "Scopes of a session"),
		func(ctx context.Context, in *Of) (*reply[wire.Scopes], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Scopes(ctx, in.S))
		})
	huma.Register(a, post(a, wire.PathScopeCancel, "scope_cancel", "End every run of a scope and of those below it"),
		func(ctx context.Context, in *struct {
			Of
			G    string `path:"g" doc:"name of a scope"`
			Body *wire.EndSession
		}) (*reply[wire.ScopeReport], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.CancelScope(ctx, in.S, in.G, or(in.Body)))
		})
}

// inbox registers what is done with what is owed.
func (d *Door) inbox(a huma.API) {
	huma.Register(a, get(a, wire.PathPending, "pending", "How many ends are owed to a session"),
		func(ctx context.Context, in *struct {
			Of
			Items bool `query:"items" doc:"list them too"`
		}) (*reply[wire.Pending], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Pending(ctx, in.S, in.Items))
		})
	huma.Register(a, post(a, wire.PathTake, "take", "Take what is owed as one batch, to be acknowledged"),
		func(ctx context.Context, in *struct {
			From
			Of
			Body *wire.Take
		}) (*reply[wire.Batch], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Take(ctx, in.S, or(in.Body), in.caller(ctx)))
		})
	huma.Register(a, post(a, wire.PathAcknowledge, "acknowledge", "Settle a batch: delivered, or returned to the inbox"),
		func(ctx context.Context, in *struct {
			Of
			Body wire.Acknowledge
		}) (*reply[wire.Acknowledged], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Acknowledge(ctx, in.S, in.Body))
		})
	huma.Register(a, get(a, wire.PathDeliveries, "deliveries", "Batches that were acknowledged, newest first"),
		func(ctx context.Context, in *struct {
			Of
			Limit int `query:"limit" minimum:"0" doc:"at most so many; 0 = all"`
		}) (*reply[wire.Deliveries], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Deliveries(ctx, in.S, in.Limit))
		})
	huma.Register(a, get(a, wire.PathIdle, "idle", "Whether nothing of a session runs, and what of the expected is missing"),
		func(ctx context.Context, in *struct {
			Of
			WaitMS int64  `query:"wait_ms" doc:"wait so long for it; 0 = do not, negative = for ever"`
			Expect string `query:"expect" doc:"handle ids, separated by commas"`
		}) (*reply[wire.Idle], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Idle(ctx, in.S, time.Duration(in.WaitMS)*time.Millisecond, ids(in.Expect)))
		})
}

func ids(list string) (out []handles.ID) {
	for part := range strings.SplitSeq(list, ",") {
		if part != "" {
			out = append(out, handles.ID(part))
		}
	}
	return out
}

// streams registers the answers that go on.
func (d *Door) streams(a huma.API) {
	huma.Register(a, streamed(a, get(a, wire.PathNotices, "notices", "What happens in a session, as server-sent events"), eventStream),
		func(ctx context.Context, in *struct {
			Of
			Since int64 `query:"since" minimum:"0" doc:"notices after this seq; 0 = only new ones"`
			Last  int64 `header:"Last-Event-ID" minimum:"0" doc:"the same, as browsers send it"`
		}) (*huma.StreamResponse, error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return d.lines(eventStream, sent, func(ctx context.Context, each func(any) error) error {
				return s.Notices(ctx, in.S, max(in.Since, in.Last), func(n wire.Notice) error { return each(n) })
			}), nil
		})
	huma.Register(a, streamed(a, get(a, wire.PathEvents, "events", "The events of a run, as server-sent events"), eventStream),
		func(ctx context.Context, in *struct {
			Ref
			Take bool `query:"take" doc:"be the one receiver, who decides what counts as dropped"`
		}) (*huma.StreamResponse, error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return d.lines(eventStream, sent, func(ctx context.Context, each func(any) error) error {
				return s.Events(ctx, in.H, in.Session, in.Take, func(e wire.Event) error { return each(e) })
			}), nil
		})
	d.held(a)
}

// held registers what lasts as long as its connection.
func (d *Door) held(a huma.API) {
	huma.Register(a, streamed(a, post(a, wire.PathRun, "run", "Run a command as the parent run of its session: a line at its start, a line at its end; it ends with the connection"), ndjson),
		func(ctx context.Context, in *struct {
			From
			Body wire.Start
		}) (*huma.StreamResponse, error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			who := in.caller(ctx)
			return d.lines(ndjson, jsonLine, func(ctx context.Context, each func(any) error) error {
				rec, err := s.Run(ctx, in.Body, who, func(a *wire.Started) error { return each(wire.RunLine{Started: a}) })
				if err != nil {
					return err
				}
				return each(wire.RunLine{Record: rec})
			}), nil
		})
	huma.Register(a, streamed(a, post(a, wire.PathAttach, "attach", "Open a session that ends with this connection: a line when it is open, then nothing"), ndjson),
		func(ctx context.Context, in *struct {
			From
			Body *wire.OpenSession
		}) (*huma.StreamResponse, error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			who := in.caller(ctx)
			return d.lines(ndjson, jsonLine, func(ctx context.Context, each func(any) error) error {
				return s.Attach(ctx, or(in.Body), who, func(v *handles.Session) error { return each(v) })
			}), nil
		})
}

func streamed(_ huma.API, o huma.Operation, media string) huma.Operation {
	o.Responses["200"] = &huma.Response{
		Description: "One JSON value after the other, as they come",
		Content:     map[string]*huma.MediaType{media: {Schema: &huma.Schema{Type: "string"}}},
	}
	return o
}
