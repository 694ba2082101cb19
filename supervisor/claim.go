package supervisor

import (
	"context"

	"procsup/supervisor/wire"
)

// CancelTake is Cancel that takes the end out of the inbox of the session that
// it is owed to: Batch is to be acknowledged then.
func (s *Supervisor) CancelTake(ctx context.Context, ref, session string, req wire.Cancel, who Caller) (*wire.Cancelled, error) {
	r, id, err := s.find(ref, session)
	if err != nil {
		return nil, err
	}
	defer s.claim(r, who)()
	c, err := s.Cancel(ctx, string(id), session, req)
	if err != nil || !c.Record.Status.Terminal() || !awaited(c.Record) {
		return c, err
	}
	if c.Batch, c.Redelivered, err = s.takeOne(id, c.Record.SessionID, who); err != nil {
		return nil, err
	}
	return c, nil
}
