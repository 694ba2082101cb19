// Command goclient is a bare client of an HTTP server on a unix socket:
// goclient SOCKET METHOD PATH [BODY].
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
)

func main() {
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", os.Args[1])
	}}}
	req, err := http.NewRequest(os.Args[2], "http://d"+os.Args[3], strings.NewReader(strings.Join(os.Args[4:], "")))
	if err == nil {
		var resp *http.Response
		if resp, err = c.Do(req); err == nil {
			_, err = io.Copy(os.Stdout, resp.Body)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
