package client_test

import (
	"encoding/json"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"procsup/supervisor/client"
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

// The time that a caller waits for the result of a cancel is that of the call,
// not of each try.
func TestACancelsWaitCountsDown(t *testing.T) {
	asked := make(chan int64, 8)
	c := client.New(client.Config{Socket: fake(t, func(n int, c net.Conn) {
		_, body := request(t, c)
		var req wire.Cancel
		if err := json.Unmarshal([]byte(body), &req); err != nil {
			t.Errorf("%q: %v", body, err)
		}
		asked <- req.WaitResultMS
		if n > 1 {
			answerWith(c, 200, `{"cancelled":true,"record":{"handle_id":"hto-1"}}`)
			return
		}
		<-time.After(20 * time.Millisecond) // time passes, and the answer is lost
	})})
	defer c.Close()
	if k, err := c.Cancel(t.Context(), "hto-1", wire.Cancel{WaitResultMS: 60_000}); err != nil || !k.Cancelled {
		t.Fatalf("%+v, %v", k, err)
	}
	if one, two := <-asked, <-asked; one > 60_000 || one-two < 15 || len(asked) > 0 {
		t.Errorf("asked to wait %d ms, then %d, and %d times more", one, two, len(asked))
	}
}
