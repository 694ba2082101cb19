package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// longest bounds every time that a call may give, in seconds: a year.
const longest = 365 * 24 * 3600

// schemaOf is the schema of a Go type, in which nothing may be null: what is
// optional is left out.
func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		panic("schema: " + err.Error()) // our own types
	}
	plain(s)
	return s
}

func plain(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if s.Types != nil {
		s.Types = slices.DeleteFunc(s.Types, func(t string) bool { return t == "null" })
		if len(s.Types) == 1 {
			s.Type, s.Types = s.Types[0], nil
		}
	}
	for _, p := range s.Properties {
		plain(p)
	}
	plain(s.Items)
	plain(s.AdditionalProperties)
}

// inputOf is the schema of arguments, with the bounds that go by their names.
func inputOf[T any]() *jsonschema.Schema {
	s := schemaOf[T]()
	zero, one, most := 0.0, 1, float64(longest)
	for name, p := range s.Properties {
		switch {
		case strings.HasSuffix(name, "_s"):
			p.Minimum, p.Maximum = &zero, &most
		case name == "max_bytes":
			p.Minimum = &zero
		case name == "source":
			p.Enum = []any{"stdout", "stderr"}
		case slices.Contains(s.Required, name) && p.Type == "string":
			p.MinLength = &one
		}
	}
	return s
}

// A toolFunc answers a call. Its error is one that the model sees.
type toolFunc[In, Out any] func(context.Context, *sdk.CallToolRequest, In) (*sdk.CallToolResult, Out, error)

// addTool adds a tool with typed input and output. The SDK's own check of
// arguments repeats values in its errors, those of variables too: ours names
// the argument and what it should be.
func addTool[In, Out any](m *sdk.Server, t *sdk.Tool, h toolFunc[In, Out]) {
	in := inputOf[In]()
	t.InputSchema, t.OutputSchema = in, schemaOf[Out]()
	m.AddTool(t, func(ctx context.Context, call *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var args In
		raw, err := checkArguments(in, call.Params.Arguments)
		if err == nil {
			err = json.Unmarshal(raw, &args)
		}
		if err != nil {
			return failure(err), nil
		}
		res, out, err := h(ctx, call, args)
		if err != nil {
			return failure(explain(err)), nil
		}
		res.StructuredContent = out
		return res, nil
	})
}

func failure(err error) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: err.Error()}}}
}

// checkArguments holds arguments against their schema and gives them without
// those that are null, which some models send for what they leave out.
func checkArguments(s *jsonschema.Schema, raw json.RawMessage) (json.RawMessage, error) {
	args := map[string]any{}
	if len(bytes.TrimSpace(raw)) > 0 {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&args) != nil {
			return nil, fmt.Errorf("the arguments are no object")
		}
	}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for name, v := range args {
		if v == nil {
			delete(args, name)
			continue
		}
		p := s.Properties[name]
		if p == nil {
			return nil, fmt.Errorf("there is no argument %.80q; there are: %s", name, strings.Join(names, ", "))
		}
		whole, err := checkValue(name, p, v)
		if err != nil {
			return nil, err
		}
		args[name] = whole
	}
	for _, name := range s.Required {
		if _, there := args[name]; !there {
			return nil, fmt.Errorf("the argument %s is missing: %s", name, s.Properties[name].Description)
		}
	}
	return json.Marshal(args)
}

// checkValue holds one value against its schema: of those that our arguments
// have. It gives the value, a whole number written as one.
func checkValue(path string, s *jsonschema.Schema, v any) (any, error) {
	wrong := func(want string) (any, error) {
		return nil, fmt.Errorf("%s must be %s, not %s", path, want, kindOf(v))
	}
	switch s.Type {
	case "string":
		text, ok := v.(string)
		switch {
		case !ok:
			return wrong("a string")
		case s.MinLength != nil && len(text) < *s.MinLength:
			return nil, fmt.Errorf("%s is empty", path)
		case len(s.Enum) > 0 && !slices.Contains(s.Enum, any(text)):
			return nil, fmt.Errorf("%s is %.40q; it is one of %v, or left out", path, text, s.Enum)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return wrong("true or false")
		}
	case "number", "integer":
		return checkNumber(path, s, v)
	case "array":
		list, ok := v.([]any)
		if !ok {
			return wrong("an array of strings")
		}
		for i, item := range list {
			if _, err := checkValue(fmt.Sprintf("%s[%d]", path, i), s.Items, item); err != nil {
				return nil, err
			}
		}
	case "object":
		fields, ok := v.(map[string]any)
		if !ok {
			return wrong("an object with strings for values")
		}
		for name, field := range fields {
			if _, err := checkValue(fmt.Sprintf("%s.%.80s", path, name), s.AdditionalProperties, field); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func checkNumber(path string, s *jsonschema.Schema, v any) (any, error) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, fmt.Errorf("%s must be a number, not %s", path, kindOf(v))
	}
	f, err := n.Float64()
	switch {
	case err != nil || s.Maximum != nil && f > *s.Maximum:
		return nil, fmt.Errorf("%s is %.40s, too much", path, n)
	case s.Minimum != nil && f < *s.Minimum:
		return nil, fmt.Errorf("%s is %.40s, less than %g", path, n, *s.Minimum)
	case s.Type == "number":
		return n, nil
	case f != math.Trunc(f) || math.Abs(f) >= 1<<53:
		return nil, fmt.Errorf("%s must be a whole number, not %.40s", path, n)
	}
	return int64(f), nil
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "true or false"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	}
	return "an object"
}
