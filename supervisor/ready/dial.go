package ready

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// dialTime bounds one try to connect: where packets are dropped the kernel
// itself repeats the first after 1 s.
const dialTime = 3 * time.Second

// tryTCP connects to any address of the host.
func tryTCP(ctx context.Context, c Cond) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return anyAddress(ctx, c.Host, c.Port, func(ctx context.Context, addr string) error {
		conn, err := dialTCP(ctx, addr)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// anyAddress runs try for each address of a host at once and returns nil when one
// works, else why the first did not.
func anyAddress(ctx context.Context, host, port string, try func(context.Context, string) error) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return try(ctx, net.JoinHostPort(host, port))
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		var d *net.DNSError
		if errors.As(err, &d) {
			return fmt.Errorf("look up %s: %s", host, d.Err)
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx) // the others stop when one works
	defer cancel()
	answers := make(chan error, len(addrs))
	for _, a := range addrs {
		go func() { answers <- try(ctx, net.JoinHostPort(a.Unmap().String(), port)) }() // bounded by ctx; waited for below
	}
	var first error
	worked := false
	for range addrs {
		err := <-answers
		if err == nil && !worked {
			worked = true
			cancel()
		}
		if first == nil {
			first = err
		}
	}
	if worked {
		return nil
	}
	return first
}

// dialTCP connects to one address. A try that nobody listens for may connect to
// itself, when the kernel gives it that very port: RFC 9293, simultaneous open.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, bare(err))
	}
	if conn.LocalAddr().String() == conn.RemoteAddr().String() {
		conn.Close()
		return nil, fmt.Errorf("connect to %s: %w", addr, syscall.ECONNREFUSED)
	}
	return conn, nil
}

// tryUnix connects to a socket of any type.
func tryUnix(ctx context.Context, path string) error {
	conn, err := dialUnix(ctx, path)
	if err == nil {
		conn.Close()
	}
	return err
}

func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	var err error
	for _, network := range []string{"unix", "unixpacket", "unixgram"} {
		var conn net.Conn
		if conn, err = d.DialContext(ctx, network, path); err == nil {
			return conn, nil
		}
		if path[0] != '@' && !errors.Is(err, syscall.EPROTOTYPE) { // else it may be of another type; abstract names are found by type
			break
		}
	}
	return nil, fmt.Errorf("connect to %s: %w", path, bare(err))
}

// bare is the cause of a network error without what is said around it.
func bare(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
