package client_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// S1-29: a notice of a kind that is not known here is skipped, whatever else is
// in it; what comes after it is not missed.
func TestS1_29_UnknownNoticesAreSkipped(t *testing.T) {
	lines := []string{
		`{"seq":1,"kind":"subscribed"}`,
		`{"seq":"two","kind":"from_the_future","handle_id":{"of":["another","type"]},"count":"many"}`,
		`{"seq":3,"kind":"handle_finished","handle_id":"hto-1","what":"is this?"}`,
		`{"seq":4,"kind":"closed"}`,
	}
	socket := fake(t, func(_ int, c net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		body := ""
		for _, l := range lines {
			body += "id: 7\ndata: " + l + "\n\n"
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	c := client.New(client.Config{Socket: socket})
	defer c.Close()
	var kinds []string
	if err := c.Notices(t.Context(), 0, func(n wire.Notice) error { kinds = append(kinds, n.Kind); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{wire.NoticeSubscribed, wire.NoticeFinished, wire.NoticeClosed}; !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}
