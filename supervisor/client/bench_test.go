package client_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"procsup/handles"
	"procsup/supervisor/client"
	"procsup/supervisor/wire"
)

// BenchmarkCall compares a call of this client with one of net/http over the
// same socket, answered by the same daemon: p50-µs is the median.
func BenchmarkCall(b *testing.B) {
	d := newDaemon(b)
	c := d.client(b, nil)
	h := start(b, c, nil, "sleep", "100")
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
	}}
	defer tr.CloseIdleConnections()
	std := &http.Client{Transport: tr}
	get := func(path string, into any) {
		res, err := std.Get("http://procsup" + path)
		if err != nil {
			b.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(into); err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
	}
	median(b, "hello/ours", func() {
		if _, err := c.Hello(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
	median(b, "hello/nethttp", func() { get(wire.PathHello, &wire.Hello{}) })
	median(b, "show/ours", func() {
		if _, err := c.Show(b.Context(), string(h.HandleID)); err != nil {
			b.Fatal(err)
		}
	})
	median(b, "show/nethttp", func() { get("/v1/handles/"+string(h.HandleID), &handles.Record{}) })
	median(b, "fresh/ours", func() {
		fresh := client.New(client.Config{Socket: d.socket})
		defer fresh.Close()
		if _, err := fresh.Hello(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
	median(b, "startwait/ours", func() {
		a := start(b, c, nil, "/bin/true")
		if _, err := c.Wait(b.Context(), string(a.HandleID), 0); err != nil {
			b.Fatal(err)
		}
	})
}

func median(b *testing.B, name string, call func()) {
	b.Run(name, func(b *testing.B) {
		var times []time.Duration
		for b.Loop() {
			t := time.Now()
			call()
			times = append(times, time.Since(t))
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1000, "p50-µs")
		b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1000, "p99-µs")
	})
}
