package keeper

import (
	"encoding/json"
	"testing"
)

// FuzzEstate: what a keeper leaves to the next one is taken whole or refused.
func FuzzEstate(f *testing.F) {
	f.Add([]byte(`{"format":1,"generation":2,"lock":5,"files":[6,7],"runs":[{"id":"hto-1","token":"a/hto-1","pipes":[8,9],"pid":77,"ticks":5,"pidfd":10}]}`))
	f.Add([]byte(`{"format":1,"generation":1,"lock":-1,"runs":[{"id":"a","pidfd":-1,"exit":{"id":"a","code":3,"order":1}},{"id":"a"}]}`))
	f.Add([]byte(`{"format":99}`))
	f.Add([]byte(`{"format":1,"generation":1,"runs":[{"id":"a","pid":-5,"pipes":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEstate(b)
		if err != nil {
			return
		}
		for _, fd := range e.descriptors() {
			if fd < 0 {
				t.Errorf("descriptor %d", fd)
			}
		}
		out, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseEstate(out); err != nil {
			t.Errorf("%s was taken, %s is not: %v", b, out, err)
		}
	})
}
