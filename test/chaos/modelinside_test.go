//go:build linux

package chaos

import (
	"context"
	"time"

	"procsup/handles"
	"procsup/supervisor"
	"procsup/supervisor/wire"
)

// inside is a caller of a supervisor in this process.
type inside struct {
	e       *embedded
	session string
	who     supervisor.Caller
}

func (i *inside) Take(ctx context.Context, req wire.Take) (*wire.Batch, error) {
	return i.e.Take(ctx, i.session, req, i.who)
}

func (i *inside) WaitTake(ctx context.Context, ref string, timeout time.Duration) (*wire.Waited, error) {
	return i.e.WaitTake(ctx, ref, i.session, timeout, i.who)
}

func (i *inside) Wait(ctx context.Context, ref string, timeout time.Duration) (*wire.Waited, error) {
	return i.e.Wait(ctx, ref, i.session, timeout)
}

func (i *inside) Start(ctx context.Context, req wire.Start) (*wire.Started, error) {
	if req.BackgroundMS != nil {
		return i.e.StartTake(ctx, req, i.who)
	}
	return i.e.Start(ctx, req)
}

func (i *inside) Run(ctx context.Context, req wire.Start, started func(*wire.Started)) (*handles.Record, error) {
	return i.e.Run(ctx, req, i.who, func(a *wire.Started) error { started(a); return nil })
}

func (i *inside) Cancel(ctx context.Context, ref string, req wire.Cancel) (*wire.Cancelled, error) {
	if req.Take {
		return i.e.CancelTake(ctx, ref, i.session, req, i.who)
	}
	return i.e.Cancel(ctx, ref, i.session, req)
}

func (i *inside) Restart(ctx context.Context, ref string, req wire.Cancel) (*wire.Started, error) {
	return i.e.Restart(ctx, ref, i.session, req)
}

func (i *inside) Show(ctx context.Context, ref string) (*handles.Record, error) {
	return i.e.Show(ctx, ref, i.session)
}

func (i *inside) Pending(ctx context.Context, items bool) (*wire.Pending, error) {
	return i.e.Pending(ctx, i.session, items)
}

func (i *inside) Acknowledge(ctx context.Context, session string, req wire.Acknowledge) (*wire.Acknowledged, error) {
	return i.e.Acknowledge(ctx, session, req)
}

func (i *inside) Deliveries(ctx context.Context, limit int) (*wire.Deliveries, error) {
	return i.e.Deliveries(ctx, i.session, limit)
}

func (i *inside) Idle(ctx context.Context, wait time.Duration, expect []handles.ID) (*wire.Idle, error) {
	return i.e.Idle(ctx, i.session, wait, expect)
}

func (i *inside) OpenScope(ctx context.Context, name, parent string) (*handles.Scope, error) {
	return i.e.OpenScope(ctx, i.session, handles.Scope{Name: name, Parent: parent})
}

func (i *inside) CancelScope(ctx context.Context, name string, req wire.EndSession) (*wire.ScopeReport, error) {
	return i.e.CancelScope(ctx, i.session, name, req)
}

func (i *inside) OpenSession(ctx context.Context, req wire.OpenSession) (*handles.Session, error) {
	return i.e.OpenSession(ctx, req, i.who)
}

func (i *inside) ShowSession(ctx context.Context, name string) (*handles.Session, error) {
	return i.e.Session(ctx, name)
}

func (i *inside) CloseSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return i.e.CloseSession(ctx, name, req, i.who)
}

func (i *inside) ClearSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return i.e.ClearSession(ctx, name, req, i.who)
}

func (i *inside) ResetSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return i.e.ResetSession(ctx, name, req, i.who)
}

func (i *inside) DeleteSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return i.e.DeleteSession(ctx, name, req, i.who)
}

func (i *inside) ShutdownSession(ctx context.Context, name string, req wire.EndSession) (*wire.SessionReport, error) {
	return i.e.ShutdownSession(ctx, name, req, i.who)
}
