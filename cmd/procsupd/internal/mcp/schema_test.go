package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestSchemas: what a model is told of the tools: nothing may be null, every
// argument is described, objects are closed.
func TestSchemas(t *testing.T) {
	s := newServer(t.Context(), Options{Log: t.Output()})
	defer s.finish()
	there, here := sdk.NewInMemoryTransports()
	server, err := s.mcp.Connect(t.Context(), there, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, nil).Connect(t.Context(), here, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tools, err := c.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 9 {
		t.Fatalf("%d tools, %v", len(tools.Tools), err)
	}
	for _, tool := range tools.Tools {
		for what, schema := range map[string]any{"input": tool.InputSchema, "output": tool.OutputSchema} {
			b, err := json.Marshal(schema)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), `"null"`) {
				t.Errorf("%s: the %s may be null: %s", tool.Name, what, b)
			}
			var o struct {
				Type       string
				Closed     *any `json:"additionalProperties"`
				Properties map[string]struct{ Type, Description string }
			}
			if err := json.Unmarshal(b, &o); err != nil || o.Type != "object" || o.Closed == nil || *o.Closed != false {
				t.Errorf("%s: the %s is no closed object: %v %s", tool.Name, what, err, b)
			}
			for name, p := range o.Properties {
				if p.Type == "" || what == "input" && p.Description == "" {
					t.Errorf("%s: %s %s is %+v", tool.Name, what, name, p)
				}
			}
		}
		if len(tool.Description) < 60 || tool.Title == "" {
			t.Errorf("%s is described as %q", tool.Name, tool.Description)
		}
	}
}
