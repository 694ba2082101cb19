package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"procsup/handles"
	"procsup/supervisor/wire"
)

// Output writes bytes of one stream to w, across restarts of the daemon, each
// once. begin, if not nil, is told where they begin before the first; gap, if
// not nil, of each range that was not kept, at its place. Errors of w end it.
func (c *Client) Output(ctx context.Context, ref string, q wire.OutputQuery, w io.Writer, begin func(wire.OutputPart), gap func(handles.Range)) error {
	path, err := c.path(wire.PathOutput, ref)
	if err != nil {
		return err
	}
	o := &output{c: c, path: path, q: q, w: w, begin: begin, gap: gap}
	t := tries{c: c, how: freely}
	for {
		seen := o.read
		done, err := o.part(ctx)
		if done {
			return err
		}
		if o.read != seen {
			t = tries{c: c, how: freely}
		}
		if err == nil {
			continue
		}
		if over, err := t.judge(ctx, err); over {
			return err
		}
		if err := t.pause(ctx); err != nil {
			return err
		}
	}
}

// output is one read of a stream over its answers.
type output struct {
	c     *Client
	path  target
	q     wire.OutputQuery // what is still wanted
	w     io.Writer
	begin func(wire.OutputPart)
	gap   func(handles.Range)
	begun bool
	read  int64 // bytes and gaps so far
}

// part reads one answer: up to the end, the next gap, or where it breaks off.
func (o *output) part(ctx context.Context) (done bool, err error) {
	if o.q.Limit < 0 {
		return true, nil
	}
	k, err := o.c.take()
	if err != nil {
		return false, &dialError{err}
	}
	release := k.guard(ctx)
	clean := false
	defer func() {
		if release() && clean {
			o.c.keep(k)
		} else {
			k.f.Close()
		}
	}()
	t := o.path.with("source", o.q.Source).with("from", o.q.From).with("limit", o.q.Limit).with("follow", o.q.Follow).with("stop", "gap")
	p, sent, err := k.send(request{method: "GET", target: t.String()})
	if err != nil {
		return false, k.cut(ctx, sent, err)
	}
	if p.status != 200 {
		b, err := io.ReadAll(io.LimitReader(p.body, 1<<20))
		if err != nil {
			return false, k.cut(ctx, true, err)
		}
		return false, refusal(p, b)
	}
	if err := o.start(p); err != nil {
		return true, err
	}
	werr, rerr := o.copy(p.body)
	switch {
	case werr != nil:
		return true, werr
	case rerr != nil:
		return false, k.cut(ctx, true, rerr)
	}
	clean = !p.close
	return o.end(p)
}

// start notes where the first answer begins, so that later ones can go on.
func (o *output) start(p *response) error {
	from, err1 := strconv.ParseInt(p.header["procsup-from"], 10, 64)
	total, err2 := strconv.ParseInt(p.header["procsup-total"], 10, 64)
	if err := errors.Join(err1, err2); err != nil || from < 0 || total < 0 {
		return fmt.Errorf("%w: an output without its offsets", errMalformed)
	}
	if o.begun {
		return nil
	}
	o.begun = true
	o.q.From = from
	if !o.q.Follow && (o.q.Limit == 0 || o.q.Limit > total-from) {
		o.q.Limit = max(0, total-from) // what was there when it began
	}
	if o.begin != nil {
		o.begin(wire.OutputPart{HandleID: handles.ID(p.header["procsup-handle"]), From: from, Total: total})
	}
	return nil
}

// copy writes what comes and counts it, so that a broken answer can be gone on
// with behind the last byte.
func (o *output) copy(r io.Reader) (werr, rerr error) {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := o.w.Write(buf[:n]); werr != nil {
				return werr, nil
			}
			o.advance(int64(n))
		}
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (o *output) advance(n int64) {
	o.read += n
	o.q.From += n
	if o.q.Limit > 0 {
		o.q.Limit = max(-1, o.q.Limit-n)
		if o.q.Limit == 0 {
			o.q.Limit = -1 // all of it; 0 would mean no limit
		}
	}
}

// end looks at why a whole answer ended, and whether there is more to read.
func (o *output) end(p *response) (done bool, err error) {
	next, err := strconv.ParseInt(p.trailer["procsup-next"], 10, 64)
	if err != nil || next < o.q.From {
		return true, fmt.Errorf("%w: an output without its end", errMalformed)
	}
	if next == o.q.From {
		return true, nil
	}
	gap := handles.Range{From: o.q.From, To: next}
	o.advance(next - o.q.From)
	if o.gap != nil {
		o.gap(gap)
	}
	return o.q.Limit < 0, nil
}
