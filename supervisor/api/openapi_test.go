package api

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write openapi.json")

// The OpenAPI document is checked in: a change of the API shows in review.
func TestOpenAPIIsCheckedIn(t *testing.T) {
	_, document := routes(&Door{})
	doc := document()
	if *update {
		if err := os.WriteFile("openapi.json", doc, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(have), string(doc)); d != "" {
		t.Errorf("openapi.json is not what is served (-file +served); run go test ./supervisor/api -run OpenAPI -update\n%s", d)
	}
}
