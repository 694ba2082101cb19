package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"procsup/capture"
	"procsup/handles"
	"procsup/supervisor/outcome"
)

// inlineOutput is how many bytes of each stream an answer carries, head and
// tail.
const inlineOutput = 50_000

// An OutputRange says which bytes of a stream to write.
type OutputRange struct {
	Source capture.Source
	From   int64  // offset; negative: so many bytes before the end
	Limit  int64  // 0 = all
	Follow bool   // go on until the stream ends
	Opened func() // called once it is there to be read; may be nil
}

// Output writes a stream, byte for byte, to w. Ranges that were not kept are
// told to gap, which may be nil, and left out.
func (s *Supervisor) Output(ctx context.Context, ref, session string, want OutputRange, w io.Writer, gap func(capture.Range)) error {
	r, id, err := s.find(ref, session)
	if err != nil {
		return err
	}
	log, done, err := s.output(ctx, r, id)
	if err != nil {
		return err
	}
	defer done()
	if want.Opened != nil {
		want.Opened()
	}
	stream := log.Stream(want.Source)
	total := stream.Extent().Total
	from := want.From
	if from < 0 {
		from = max(0, total+from)
	}
	f := stream.Follow(from)
	defer f.Close()
	left := want.Limit
	if left == 0 {
		left = 1<<62 - 1
	}
	if !want.Follow {
		left = min(left, max(0, total-from))
	}
	buf := make([]byte, 64<<10)
	for left > 0 {
		n, err := f.Read(ctx, buf[:min(left, int64(len(buf)))])
		left -= int64(n)
		if _, werr := w.Write(buf[:n]); werr != nil {
			return werr
		}
		var hole *capture.Omitted
		switch {
		case errors.As(err, &hole):
			left -= hole.Len()
			if gap != nil {
				gap(hole.Range)
			}
		case errors.Is(err, io.EOF):
			if s.life.Err() != nil { // the successor knows whether that is all
				return handles.ErrStarting
			}
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// inline puts head and tail of both streams into a record.
func (s *Supervisor) inline(rec *handles.Record, id handles.ID) {
	log, done, err := s.output(s.life, s.live(id), id)
	if err != nil {
		return
	}
	defer done()
	rec.Stdout = outcome.Text(log, capture.Stdout, inlineOutput)
	if rec.Output != nil && rec.Output.Stderr != nil {
		rec.Stderr = outcome.Text(log, capture.Stderr, inlineOutput)
	}
}

func unmarshal(b []byte, to any) error { return json.Unmarshal(b, to) }
