//go:build !linux

package keeper

import (
	"context"
	"errors"
	"log/slog"
)

// Keep is not supported here: there are no subreapers. It returns 1.
func Keep(_ context.Context, cfg Config) (code int) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Log.Error("keeper", "err", errors.ErrUnsupported)
	return 1
}

// Poke is not supported here.
func Poke(string) error { return errors.ErrUnsupported }

// OpenEstate is not supported here.
func OpenEstate(int) (*Estate, error) { return nil, errors.ErrUnsupported }

// A Link is never made here.
type Link struct{}

// Connect is not supported here.
func Connect(int) (*Link, *Handover, error) { return nil, nil, errors.ErrUnsupported }

// Close is not supported here, and neither is any other method.
func (*Link) Close() error { return errors.ErrUnsupported }

// Succeed is not supported here.
func (*Link) Succeed(string, []string) error { return errors.ErrUnsupported }

// Register is not supported here.
func (*Link) Register(string, string, []Descriptor) error { return errors.ErrUnsupported }

// HoldPipe does nothing here.
func (*Link) HoldPipe(string, int, Descriptor) {}

// HoldPidfd does nothing here.
func (*Link) HoldPidfd(string, Descriptor) {}

// RegisterMarked is not supported here.
func (*Link) RegisterMarked(string, string, uint64, []Descriptor) error { return errors.ErrUnsupported }

// Mark runs start.
func (*Link) Mark(_ string, start func()) { start() }

// Spawned is not supported here.
func (*Link) Spawned(string, int, uint64) error { return errors.ErrUnsupported }

// Trim is not supported here.
func (*Link) Trim(string, int) error { return errors.ErrUnsupported }

// Withdraw is not supported here.
func (*Link) Withdraw(string) error { return errors.ErrUnsupported }

// Settled is not supported here.
func (*Link) Settled(string) error { return errors.ErrUnsupported }

// Ready is not supported here.
func (*Link) Ready() error { return errors.ErrUnsupported }

// Refuse is not supported here.
func (*Link) Refuse(int, string) error { return errors.ErrUnsupported }

// Replace is not supported here.
func (*Link) Replace(string) error { return errors.ErrUnsupported }

// Stopping is not supported here.
func (*Link) Stopping() error { return errors.ErrUnsupported }

// ShutdownDone is not supported here.
func (*Link) ShutdownDone() error { return errors.ErrUnsupported }

// Exits never gives anything here.
func (*Link) Exits() <-chan Exit { return nil }

// Found never gives anything here.
func (*Link) Found() <-chan Found { return nil }

// Requests never gives anything here.
func (*Link) Requests() <-chan Request { return nil }

// Gone is never closed here.
func (*Link) Gone() <-chan struct{} { return nil }
