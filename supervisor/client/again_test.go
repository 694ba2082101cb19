package client_test

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"

	"procsup/supervisor/wire"
)

// S3-61, S2-29: the connection drops after a cancel was carried out; the client
// asks again under the same key and is told that it did end the run.
func TestS3_61_ALostCancelIsAskedForAgain(t *testing.T) {
	d := newDaemon(t)
	var drop atomic.Int32
	keys := make(chan string, 8)
	d.hangUp()
	d.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" && drop.Add(-1) >= 0 {
			d.door.ServeHTTP(discard{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		}
		d.door.ServeHTTP(w, r)
	})
	d.listen(t)
	c := d.client(t, nil)
	a := start(t, c, nil, "sleep", "100")
	drop.Store(2)
	k, err := c.Cancel(t.Context(), string(a.HandleID), wire.Cancel{})
	if err != nil || !k.Cancelled || drop.Load() >= 0 {
		t.Errorf("cancel: %s, %v, %d answers to lose left", asJSON(k), err, drop.Load()+1)
	}
	rows, err := c.Journal(t.Context(), 0, string(a.HandleID), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		var body struct{ Stop struct{ Key string } }
		if b, _ := json.Marshal(row.Body); json.Unmarshal(b, &body) == nil && row.Kind == "stop" {
			keys <- body.Stop.Key
		}
	}
	if len(keys) != 1 || len(<-keys) != 32 {
		t.Errorf("%d stop rows, want one with a key", len(keys))
	}
	if k, err := c.Cancel(t.Context(), string(a.HandleID), wire.Cancel{}); err != nil || k.Cancelled {
		t.Errorf("another cancel: %s, %v", asJSON(k), err)
	}
}
