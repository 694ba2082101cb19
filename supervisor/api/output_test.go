package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor"
	"procsup/supervisor/wire"
)

// A scripted backend: Show knows a run with so many bytes, and Output does what
// the test says. Everything else panics.
type scripted struct {
	Backend
	total  int64
	output func(ctx context.Context, want supervisor.OutputRange, w io.Writer, gap func(capture.Range)) error
	wait   func(ctx context.Context) (*wire.Waited, error)
}

func (s *scripted) Show(context.Context, string, string) (*handles.Record, error) {
	return &handles.Record{HandleID: "hto-X", Output: &handles.Output{Stdout: &handles.StreamOutput{Bytes: s.total}}}, nil
}

func (s *scripted) Output(ctx context.Context, _, _ string, want supervisor.OutputRange, w io.Writer, gap func(capture.Range)) error {
	return s.output(ctx, want, w, gap)
}

func (s *scripted) Wait(ctx context.Context, _, _ string, _ time.Duration) (*wire.Waited, error) {
	return s.wait(ctx)
}

// withGaps is a stream of 12 bytes of which 3..6 and 9..11 are gone.
func withGaps(ctx context.Context, want supervisor.OutputRange, w io.Writer, gap func(capture.Range)) error {
	for _, p := range []struct {
		off int64
		s   string
		gap capture.Range
	}{{0, "abc", capture.Range{}}, {3, "", capture.Range{From: 3, To: 6}}, {6, "ghi", capture.Range{}}, {9, "", capture.Range{From: 9, To: 11}}, {11, "l", capture.Range{}}} {
		if p.off < want.From {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := io.WriteString(w, p.s); err != nil {
			return err
		}
		if p.s == "" {
			gap(p.gap)
		}
	}
	return nil
}

// Ranges that were not kept are exact in the trailer; with stop=gap the answer
// ends there and says where to go on.
func TestOutputGapsAreInTheTrailer(t *testing.T) {
	s := serve(t, New(&scripted{total: 12, output: withGaps}))
	for query, want := range map[string][4]string{
		"":                 {"0", "abcghil", "12", "3-6,9-11"},
		"?stop=gap":        {"0", "abc", "6", "3-6"},
		"?stop=gap&from=6": {"6", "ghi", "11", "9-11"},
		"?from=11":         {"11", "l", "12", ""},
		"?from=-1":         {"11", "l", "12", ""},
	} {
		res := s.call(t, "GET", "/v1/handles/x/output"+query, "", nil)
		got := [4]string{res.Header.Get(wire.HeaderFrom), body(t, res), res.Trailer.Get(wire.TrailerNext), res.Trailer.Get(wire.TrailerOmitted)}
		if got != want || res.Header.Get(wire.HeaderTotal) != "12" || res.Header.Get(wire.HeaderHandle) != "hto-X" {
			t.Errorf("%q: from, bytes, next, omitted %q, want %q (%v)", query, got, want, res.Header)
		}
	}
}

// An answer that breaks off in the middle looks broken to every client.
func TestOutputThatFailsIsBrokenOff(t *testing.T) {
	b := &scripted{total: 4}
	s := serve(t, New(b))
	b.output = func(_ context.Context, _ supervisor.OutputRange, w io.Writer, _ func(capture.Range)) error {
		io.WriteString(w, strings.Repeat("x", 100<<10))
		return errors.New("the disk is gone")
	}
	res, err := s.http.Get("http://procsup/v1/handles/x/output")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %d bytes and %v, want an unexpected end", len(got), err)
	}
	b.output = func(context.Context, supervisor.OutputRange, io.Writer, func(capture.Range)) error {
		return &handles.Error{Code: handles.CodeNotFound, Message: "the spool is gone"}
	}
	s.refused(t, "GET", "/v1/handles/x/output", "", handles.CodeNotFound, http.StatusNotFound)
}

// Bytes come as they are, from any offset, and following ends with the stream.
func TestOutputRawAndFollowed(t *testing.T) {
	s := serve(t, New(newSupervisor(t)))
	var a wire.Started
	s.call(t, "POST", wire.PathHandles, startJSON(`printf 'a\000\377b'; read x; printf c; printf err >&2`, `,"stdin":"pipe"`), &a)
	h := "/v1/handles/" + string(a.HandleID)
	s.call(t, "POST", h+"/wait-output", `{"pattern":"b"}`, nil)
	if got := body(t, s.call(t, "GET", h+"/output?from=1", "", nil)); got != "\x00\xffb" {
		t.Errorf("from 1: %q", got)
	}
	if got := body(t, s.call(t, "GET", h+"/output?from=-1&limit=7", "", nil)); got != "b" {
		t.Errorf("the last byte: %q", got)
	}
	res, err := s.http.Get("http://procsup" + h + "/output?follow=true&from=4")
	if err != nil {
		t.Fatal(err) // the head comes before any byte does
	}
	defer res.Body.Close()
	if res.Header.Get(wire.HeaderTotal) != "4" {
		t.Errorf("head of a follower: %v", res.Header)
	}
	s.call(t, "POST", h+"/stdin", "\n", nil)
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != "c" || res.Trailer.Get(wire.TrailerNext) != "5" {
		t.Errorf("followed: %q, %v, trailer %v", got, err, res.Trailer)
	}
	if got := body(t, s.call(t, "GET", h+"/output?source=stderr", "", nil)); got != "err" {
		t.Errorf("stderr: %q", got)
	}
}

// A client that goes away ends its wait, and its read, in the server.
func TestAClientThatGoesAwayIsNoticed(t *testing.T) {
	ended := make(chan error, 1)
	begun := make(chan struct{}, 1)
	until := func(ctx context.Context) error {
		begun <- struct{}{}
		select {
		case <-ctx.Done():
			ended <- ctx.Err()
			return ctx.Err()
		case <-time.After(long):
			ended <- errors.New("nobody told")
			return nil
		}
	}
	b := &scripted{
		wait: func(ctx context.Context) (*wire.Waited, error) { return nil, until(ctx) },
		output: func(ctx context.Context, _ supervisor.OutputRange, _ io.Writer, _ func(capture.Range)) error {
			return until(ctx)
		},
	}
	s := serve(t, New(b))
	for _, target := range []string{"/v1/handles/x/wait", "/v1/handles/x/output?follow=true"} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", "http://procsup"+target, nil)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { // ends with the request
			defer close(done)
			if res, err := s.http.Do(req); err == nil {
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}()
		<-begun
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", target, err)
		}
		<-done
	}
}

// Output that is gone is said to be, to a follower too: an answer that was begun
// would be broken off, and asked for again and again.
func TestFollowOfOutputThatIsGone(t *testing.T) {
	sup := newSupervisor(t)
	s := serve(t, New(sup))
	var a wire.Started
	s.call(t, "POST", wire.PathHandles, startJSON(`echo x`, ""), &a)
	h := "/v1/handles/" + string(a.HandleID)
	s.call(t, "GET", h+"/wait", "", nil)
	if err := os.RemoveAll(filepath.Dir(a.StdoutPath)); err != nil {
		t.Fatal(err)
	}
	for _, follow := range []string{"false", "true"} {
		s.refused(t, "GET", h+"/output?follow="+follow, "", handles.CodeNotFound, http.StatusNotFound)
	}
}
