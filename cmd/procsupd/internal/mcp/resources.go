package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// Resources: what is owed, the record of a command, and its output.
const (
	inboxURI   = "procsup://inbox"
	handleBase = "procsup://handles/"
)

// updateEvery bounds how often a subscriber is told of new output.
const updateEvery = 100 * time.Millisecond

func handleURI(id handles.ID) string { return handleBase + string(id) }

func (s *server) resources(m *sdk.Server) {
	m.AddResource(&sdk.Resource{URI: inboxURI, Name: "inbox", MIMEType: "application/json", Description: "Commands that finished in the background and whose results were not acknowledged. Reading changes nothing; take_finished delivers them."}, s.readInbox)
	m.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: handleBase + "{handle}", Name: "handle", MIMEType: "application/json", Description: "How a command stands"}, s.readHandle)
	m.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: handleBase + "{handle}/{stream}", Name: "output", Description: "What a command wrote: stream is stdout or stderr. The last MiB, byte for byte"}, s.readStream)
}

func (s *server) readInbox(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	p, err := reach(ctx, s, func() (*wire.Pending, error) { return s.c.Pending(ctx, true) })
	if err != nil {
		return nil, err
	}
	views := []handleView{}
	for _, c := range p.Items {
		views = append(views, viewOf(c.Result))
	}
	return jsonResource(r.Params.URI, listOutput{Handles: views})
}

func (s *server) readHandle(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	rec, err := s.show(ctx, strings.TrimPrefix(r.Params.URI, handleBase))
	if errors.Is(err, handles.ErrNotFound) {
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	if err != nil {
		return nil, err
	}
	return jsonResource(r.Params.URI, viewOf(rec))
}

func jsonResource(uri string, v any) (*sdk.ReadResourceResult, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: "application/json", Text: string(b)}}}, nil
}

// stream splits the URI of an output.
func stream(uri string) (ref, source string, ok bool) {
	ref, source, ok = strings.Cut(strings.TrimPrefix(uri, handleBase), "/")
	return ref, source, ok && strings.HasPrefix(uri, handleBase) && (source == "stdout" || source == "stderr")
}

func (s *server) readStream(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	ref, source, ok := stream(r.Params.URI)
	if !ok {
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	rec, err := s.show(ctx, ref)
	if errors.Is(err, handles.ErrNotFound) {
		return nil, sdk.ResourceNotFoundError(r.Params.URI)
	}
	if err != nil {
		return nil, err
	}
	p, err := s.read(ctx, rec, source, -maxBytes, maxBytes)
	if err != nil {
		return nil, explain(err)
	}
	b := p.bytes()
	c := &sdk.ResourceContents{URI: r.Params.URI, MIMEType: "text/plain", Text: string(b)}
	if !utf8.Valid(b) {
		c = &sdk.ResourceContents{URI: r.Params.URI, MIMEType: "application/octet-stream", Blob: b}
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
}

// show is the record of a handle that a URI names.
func (s *server) show(ctx context.Context, ref string) (*handles.Record, error) {
	return reach(ctx, s, func() (*handles.Record, error) { return s.c.Show(ctx, ref) })
}

// subscribe follows a resource for as long as somebody wants to know. The inbox
// and the records are told of by announce.
func (s *server) subscribe(ctx context.Context, r *sdk.SubscribeRequest) error {
	uri := r.Params.URI
	if uri == inboxURI {
		_, err := s.attach(ctx, s.c)
		return err
	}
	ref, source, ok := stream(uri)
	if !ok {
		ref = strings.TrimPrefix(uri, handleBase)
	}
	rec, err := s.show(ctx, ref)
	if errors.Is(err, handles.ErrNotFound) {
		return sdk.ResourceNotFoundError(uri)
	}
	if err != nil || !ok {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watching[uri] != nil {
		return nil
	}
	follow, cancel := context.WithCancel(s.life)
	s.watching[uri] = cancel
	s.tasks.Go(func() { s.follow(follow, rec.HandleID, uri, source) }) // ends with the output, by unsubscribe, or with life
	return nil
}

// follow tells of new output, at most so often and always of the last.
func (s *server) follow(ctx context.Context, id handles.ID, uri, source string) {
	late := time.AfterFunc(time.Hour, func() { s.updated(ctx, uri) })
	late.Stop()
	defer late.Stop()
	var last time.Time
	_ = s.c.Events(ctx, string(id), false, func(e wire.Event) error { // its end is that of the run
		if e.Kind != wire.EventEnded && (e.Kind != wire.EventOutput || e.Source != source) {
			return nil
		}
		late.Stop()
		if wait := updateEvery - time.Since(last); wait > 0 && e.Kind != wire.EventEnded {
			late.Reset(wait)
			return nil
		}
		last = time.Now()
		s.updated(ctx, uri)
		return nil
	})
	_ = s.unwatch(uri)
}

func (s *server) unsubscribe(_ context.Context, r *sdk.UnsubscribeRequest) error {
	return s.unwatch(r.Params.URI)
}

func (s *server) unwatch(uri string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.watching[uri]; cancel != nil {
		cancel()
		delete(s.watching, uri)
	}
	return nil
}
