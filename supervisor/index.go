package supervisor

import (
	"context"

	"procsup/capture"
)

// Index says when which bytes of a run came, as far as that was kept.
func (s *Supervisor) Index(ctx context.Context, ref, session string) ([]capture.Record, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	log, done, err := s.output(ctx, r, id)
	if err != nil {
		return nil, err
	}
	defer done()
	return log.Records()
}
