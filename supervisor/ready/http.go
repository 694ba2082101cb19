package ready

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// httpTime bounds one request: a server that takes longer is asked again.
const httpTime = 5 * time.Second

// maxHead bounds what is read of an answer; its body is not.
const maxHead = 64 << 10

// tryHTTP makes one GET, by hand: package net/http is for api and client alone,
// and would obey HTTP_PROXY. No redirect is followed: it is an answer like others.
func tryHTTP(ctx context.Context, c Cond) error {
	ctx, cancel := context.WithTimeout(ctx, httpTime)
	defer cancel()
	if c.Path != "" {
		conn, err := dialUnix(ctx, c.Path)
		if err != nil {
			return err
		}
		return ask(ctx, conn, c)
	}
	return anyAddress(ctx, c.Host, c.Port, func(ctx context.Context, addr string) error {
		conn, err := dialTCP(ctx, addr)
		if err != nil {
			return err
		}
		return ask(ctx, conn, c)
	})
}

// ask sends the request and looks at the status. It closes the connection.
func ask(ctx context.Context, conn net.Conn, c Cond) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if c.URL.Scheme == "https" { // verified by the system's roots, always
		t := tls.Client(conn, &tls.Config{ServerName: c.Host})
		if err := t.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("GET %s: %w", c.URL, err)
		}
		conn = t
	}
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: procsup\r\nAccept: */*\r\nConnection: close\r\n\r\n", c.URL.RequestURI(), c.URL.Host)
	if err != nil {
		return fmt.Errorf("GET %s: %w", c.URL, late(ctx, err))
	}
	status, err := readStatus(bufio.NewReader(io.LimitReader(conn, maxHead)))
	switch {
	case err != nil:
		return fmt.Errorf("GET %s: %w", c.URL, late(ctx, err))
	case c.Status == 0 && (status < 200 || status > 299):
		return fmt.Errorf("GET %s: status %d, want 2xx", c.URL, status)
	case c.Status != 0 && status != c.Status:
		return fmt.Errorf("GET %s: status %d, want %d", c.URL, status, c.Status)
	}
	return nil
}

func late(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", httpTime)
	}
	return bare(err)
}

// readStatus reads the head of an answer, RFC 9112, passing over interim ones.
func readStatus(r *bufio.Reader) (int, error) {
	for {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[0], "HTTP/") || len(f[1]) != 3 {
			return 0, fmt.Errorf("the answer is not HTTP: %.40q", line)
		}
		status, err := strconv.Atoi(f[1])
		if err != nil {
			return 0, fmt.Errorf("the answer is not HTTP: %.40q", line)
		}
		if status >= 200 || status == 101 {
			return status, nil
		}
		for strings.TrimRight(line, "\r\n") != "" { // the head of an interim answer
			if line, err = r.ReadString('\n'); err != nil {
				return 0, io.ErrUnexpectedEOF
			}
		}
	}
}
