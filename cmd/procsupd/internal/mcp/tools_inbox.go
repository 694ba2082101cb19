package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"procsup/supervisor/wire"
)

type takeInput struct {
	Wait     float64 `json:"wait_s,omitempty" jsonschema:"wait so many seconds for something to finish; 0 = do not wait"`
	MaxBytes int     `json:"max_bytes,omitempty" jsonschema:"most bytes of each stream of each command; default 4000"`
}

type takeOutput struct {
	Batch       string       `json:"batch,omitempty" jsonschema:"give this to acknowledge once you have used the results"`
	Redelivered bool         `json:"redelivered,omitempty" jsonschema:"these were taken before and not acknowledged"`
	Count       int          `json:"count"`
	Finished    []handleView `json:"finished"`
}

type ackInput struct {
	Batch    string `json:"batch" jsonschema:"the batch that take_finished gave"`
	Returned bool   `json:"returned,omitempty" jsonschema:"put the results back instead: they come again"`
}

type ackOutput struct {
	Batch   string `json:"batch"`
	Count   int    `json:"count"`
	Pending int    `json:"pending" jsonschema:"finished commands whose results were not acknowledged"`
}

func (s *server) inboxTools(m *sdk.Server) {
	addTool(m, &sdk.Tool{
		Name: "take_finished", Title: "Take finished results",
		Description: "Get the results of all commands that finished in the background and were not delivered yet, as one batch. Acknowledge the batch when you have used it; until then it is offered again, marked.",
	}, s.takeFinished)
	addTool(m, &sdk.Tool{
		Name: "acknowledge", Title: "Acknowledge results", Annotations: &sdk.ToolAnnotations{IdempotentHint: true},
		Description: "Say that the results of a batch from take_finished have been used, so that they are not given again; or return them.",
	}, s.acknowledge)
}

func (s *server) takeFinished(ctx context.Context, _ *sdk.CallToolRequest, in takeInput) (*sdk.CallToolResult, takeOutput, error) {
	most := in.MaxBytes
	if most <= 0 {
		most = defaultTail
	}
	take := func(wait time.Duration) (*wire.Batch, error) {
		return reach(ctx, s, func() (*wire.Batch, error) { return s.inbox.Take(ctx, wire.Take{WaitMS: wait.Milliseconds()}) })
	}
	b, err := take(0)
	if err == nil && b.Count == 0 && (s.reclaim(ctx) || in.Wait > 0) {
		b, err = take(seconds(in.Wait))
	}
	if err != nil {
		return nil, takeOutput{}, err
	}
	out := takeOutput{Batch: b.Batch, Redelivered: b.Redelivered, Count: b.Count, Finished: []handleView{}}
	s.recount(ctx)
	if b.Count == 0 {
		return s.say("nothing has finished\n", false), out, nil
	}
	s.hand(b.Batch, true)
	var text strings.Builder
	if b.Redelivered {
		text.WriteString("These were given before, and not acknowledged.\n")
	}
	for _, c := range b.Completions {
		v := s.withOutput(ctx, c.Result, most, true)
		out.Finished = append(out.Finished, v)
		fmt.Fprintf(&text, "%s  %s\n%s", v.headline(), v.Command, v.outputs())
	}
	fmt.Fprintf(&text, "acknowledge batch %s when you have used these\n", b.Batch)
	return s.say(text.String(), false), out, nil
}

// hand notes that a batch was given to the client, until it is acknowledged.
func (s *server) hand(batch string, given bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if given {
		s.handed[batch] = true
	} else {
		delete(s.handed, batch)
	}
}

func (s *server) acknowledge(ctx context.Context, _ *sdk.CallToolRequest, in ackInput) (*sdk.CallToolResult, ackOutput, error) {
	req := wire.Acknowledge{Batch: in.Batch}
	if in.Returned {
		req.Outcome = "returned"
	}
	a, err := reach(ctx, s, func() (*wire.Acknowledged, error) { return s.c.Acknowledge(ctx, s.session, req) })
	if err != nil {
		return nil, ackOutput{}, err
	}
	s.hand(in.Batch, false)
	s.recount(ctx)
	return s.say(fmt.Sprintf("%d results settled\n", a.Count), false), ackOutput{Batch: a.Batch, Count: a.Count, Pending: a.Pending}, nil
}
