package api

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"procsup/handles"
	"procsup/supervisor/journal"
	"procsup/supervisor/wire"
)

// A Ref names a handle.
type Ref struct {
	H       string `path:"h" doc:"handle id, a unique prefix of one, or a name"`
	Session string `query:"session" doc:"session in which a name is looked up; empty = default"`
}

// routes registers every operation. The OpenAPI document is written when it is
// asked for: it is half of what a supervisor takes to start, and that is how
// long clients wait after one was killed.
func routes(d *Door) (mux *http.ServeMux, document func() []byte) {
	mux = http.NewServeMux()
	cfg := huma.DefaultConfig("procsup", "1")
	cfg.CreateHooks = nil // no $schema in bodies
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath = "", "", ""
	cfg.AllowAdditionalPropertiesByDefault = true // unknown fields are ignored, S2-39
	cfg.Transformers = []huma.Transformer{typed}
	cfg.Info.Description = "The procsup daemon over its unix socket: curl --unix-socket SOCKET http://procsup/v1/hello\n\n" +
		"An answer tells of one moment, and may be superseded when it arrives: revision counts the changes of a record, " +
		"seq is the number of the journal row for which the answer is true. Of two answers the one with the greater seq is the newer."
	a := humago.New(mux, cfg)
	a.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) { next(plainStatus{ctx}) })
	d.starts(a)
	d.reads(a)
	d.waits(a)
	d.stops(a)
	d.inputs(a)
	d.output(a)
	d.journal(a)
	d.sessions(a)
	d.inbox(a)
	d.streams(a)
	unused(a)
	document = sync.OnceValue(func() []byte { return marshal(a) })
	mux.HandleFunc("GET "+wire.PathOpenAPI, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document()) // the client may be gone
	})
	return mux, document
}

// unused takes huma's own errors, which become ours, out of the document.
func unused(a huma.API) {
	schemas := a.OpenAPI().Components.Schemas.Map()
	for _, name := range []string{"ErrorModel", "ErrorDetail"} {
		delete(schemas, name)
	}
}

// marshal writes the document as it is checked in.
func marshal(a huma.API) []byte {
	b, err := json.MarshalIndent(a.OpenAPI(), "", "  ")
	if err != nil {
		panic("openapi: " + err.Error()) // plain data
	}
	return append(b, '\n')
}

// op describes one operation. Bodies were read and limited before huma.
func op(a huma.API, method, path, id, summary string) huma.Operation {
	schema := a.OpenAPI().Components.Schemas.Schema(errorType, true, "Error")
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary,
		MaxBodyBytes: -1, BodyReadTimeout: -1,
		Responses: map[string]*huma.Response{"default": {
			Description: "What went wrong; the status follows from the code",
			Content:     map[string]*huma.MediaType{"application/json": {Schema: schema}},
		}},
	}
}

func get(a huma.API, path, id, summary string) huma.Operation {
	return op(a, http.MethodGet, path, id, summary)
}

func post(a huma.API, path, id, summary string) huma.Operation {
	return op(a, http.MethodPost, path, id, summary)
}

func (d *Door) starts(a huma.API) {
	huma.Register(a, post(a, wire.PathHandles, "start", "Start a command in the background"),
		func(ctx context.Context, in *struct {
			From
			Body wire.Start
		}) (*reply[wire.Started], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			if in.Body.BackgroundMS != nil {
				return answer(s.StartTake(ctx, in.Body, in.caller(ctx)))
			}
			return answer(s.Start(ctx, in.Body))
		})
	huma.Register(a, post(a, wire.PathRestart, "restart", "End a run and start the same command as a new one"),
		func(ctx context.Context, in *struct {
			Ref
			Body *wire.Cancel
		}) (*reply[wire.Started], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Restart(ctx, in.H, in.Session, or(in.Body)))
		})
}

// or is the body, or an empty one where none was sent.
func or[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func (d *Door) reads(a huma.API) {
	huma.Register(a, get(a, wire.PathHello, "hello", "Who answers, and which protocol it speaks"),
		func(ctx context.Context, _ *struct{}) (*reply[wire.Hello], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Hello(ctx))
		})
	huma.Register(a, get(a, wire.PathHandle, "show", "The record of a handle"),
		func(ctx context.Context, in *Ref) (*reply[handles.Record], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Show(ctx, in.H, in.Session))
		})
	huma.Register(a, get(a, wire.PathHandles, "list", "Records, newest first"),
		func(ctx context.Context, in *struct {
			Session string `query:"session" doc:"only of this session; empty = of all"`
			Live    bool   `query:"live" doc:"only what has not ended"`
			Kind    string `query:"kind" enum:"command,test,build," doc:"only what was started as this"`
			Limit   int    `query:"limit" minimum:"0" doc:"at most so many; 0 = all"`
		}) (*reply[wire.List], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.List(ctx, journal.Filter{Session: in.Session, LiveOnly: in.Live, Limit: in.Limit, Tag: in.Kind}))
		})
}

func (d *Door) waits(a huma.API) {
	huma.Register(a, get(a, wire.PathWait, "wait", "Answer when a run has ended; cancels nothing"),
		func(ctx context.Context, in *struct {
			Ref
			From
			TimeoutMS int64 `query:"timeout_ms" doc:"0 = wait for ever; negative = do not wait"`
			Take      bool  `query:"take" doc:"take the end out of the inbox, if it is owed; acknowledge the batch in the answer"`
		}) (*reply[wire.Waited], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			if in.Take {
				return answer(s.WaitTake(ctx, in.H, in.Session, time.Duration(in.TimeoutMS)*time.Millisecond, in.caller(ctx)))
			}
			return answer(s.Wait(ctx, in.H, in.Session, time.Duration(in.TimeoutMS)*time.Millisecond))
		})
	huma.Register(a, get(a, wire.PathWaitReady, "wait_ready", "Answer when a run is ready, or has ended; cancels nothing"),
		func(ctx context.Context, in *struct {
			Ref
			TimeoutMS int64 `query:"timeout_ms" doc:"0 = wait for ever; negative = do not wait"`
		}) (*reply[wire.ReadyWaited], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.WaitReady(ctx, in.H, in.Session, time.Duration(in.TimeoutMS)*time.Millisecond))
		})
	huma.Register(a, post(a, wire.PathWaitOutput, "wait_output", "Answer when a pattern was written, or the run has ended without"),
		func(ctx context.Context, in *struct {
			Ref
			Body wire.WaitOutput
		}) (*reply[wire.OutputWaited], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.WaitOutput(ctx, in.H, in.Session, in.Body))
		})
}

func (d *Door) stops(a huma.API) {
	huma.Register(a, post(a, wire.PathCancel, "cancel", "End a run and its whole tree; no error if it has ended"),
		func(ctx context.Context, in *struct {
			From
			Ref
			Body *wire.Cancel
		}) (*reply[wire.Cancelled], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			if in.Body != nil && in.Body.Take {
				return answer(s.CancelTake(ctx, in.H, in.Session, *in.Body, in.caller(ctx)))
			}
			return answer(s.Cancel(ctx, in.H, in.Session, or(in.Body)))
		})
	huma.Register(a, post(a, wire.PathCancelByID, "cancel_handle", "cancel, with the handle in the body"),
		func(ctx context.Context, in *struct {
			Session string `query:"session"`
			Body    wire.CancelByID
		}) (*reply[wire.Cancelled], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Cancel(ctx, in.Body.HandleID, in.Session, in.Body.Cancel))
		})
	huma.Register(a, post(a, wire.PathShutdown, "shutdown", "End the daemon, or with replace restart it; answered before it is done, with report when all work has ended"),
		func(ctx context.Context, in *struct {
			From
			Body *wire.Shutdown
		}) (*reply[wire.Accepted], error) {
			s, err := d.server()
			if err == nil {
				err = s.MayStop(in.caller(ctx))
			}
			if err != nil {
				return nil, fail(err)
			}
			hello, err := s.Hello(ctx)
			if err != nil {
				return nil, fail(err)
			}
			req := or(in.Body)
			a := &wire.Accepted{Accepted: true, Generation: hello.Generation}
			if req.Report && !req.Replace {
				if a.Report, err = s.ShutdownAll(ctx, req); err != nil {
					return nil, fail(err)
				}
			}
			afterAnswer(ctx, Request{Replace: req.Replace, Exe: req.Exe})
			return answer(a, nil)
		})
}

func (d *Door) inputs(a huma.API) {
	huma.Register(a, post(a, wire.PathSignal, "signal", "Send a signal to a run's process group"),
		func(ctx context.Context, in *struct {
			Ref
			Body wire.Signal
		}) (*reply[handles.Record], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Signal(ctx, in.H, in.Session, in.Body))
		})
	huma.Register(a, post(a, wire.PathStdin, "send", "Write the request's body, byte for byte, to a run's stdin"),
		func(ctx context.Context, in *struct {
			Ref
			Close   bool `query:"close" doc:"close the stdin then"`
			RawBody []byte
		}) (*reply[handles.Record], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			return answer(s.Send(ctx, in.H, in.Session, in.RawBody, in.Close))
		})
	a.OpenAPI().Paths[wire.PathStdin].Post.RequestBody.Required = false // only to close
}

func (d *Door) journal(a huma.API) {
	huma.Register(a, get(a, wire.PathJournal, "journal", "Rows of the journal, oldest first"),
		func(ctx context.Context, in *struct {
			After int64  `query:"after" minimum:"0" doc:"only rows with a greater seq"`
			Run   string `query:"run" doc:"only rows of this handle"`
			Limit int    `query:"limit" minimum:"0" doc:"at most so many; 0 = all"`
		}) (*reply[wire.JournalPage], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			es, err := s.Journal(ctx, in.After, in.Run, in.Limit)
			return answer(&wire.JournalPage{Entries: es}, err)
		})
	huma.Register(a, post(a, wire.PathJournalCheck, "journal_check", "Verify the journal and mend its projections"),
		func(ctx context.Context, _ *struct{}) (*reply[wire.JournalReport], error) {
			s, err := d.server()
			if err != nil {
				return nil, err
			}
			r, err := s.CheckJournal(ctx)
			return answer(&wire.JournalReport{
				OK: r.OK(), Entries: r.Entries, Runs: r.Runs, Keys: r.Keys, LastSeq: r.LastSeq,
				Damage: r.Damage, Unfit: r.Unfit, Dirty: r.Dirty, Repaired: r.Repaired, Reindexed: r.Reindexed,
			}, err)
		})
}
