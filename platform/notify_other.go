//go:build !linux

package platform

import (
	"errors"
	"os"
)

// NewNotifyName is for Linux only.
func NewNotifyName() string { return "" }

// ListenNotify needs abstract sockets and the credentials of senders.
func ListenNotify(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// A Datagram is one message and what came with it.
type Datagram struct {
	Data    []byte
	TooLong bool
	Sender  Cred
}

// Files is how many descriptors came with it.
func (d *Datagram) Files() int { return 0 }

// Close closes every descriptor that came with it.
func (d *Datagram) Close() {}

// CgroupID is not known here.
func (d *Datagram) CgroupID() (uint64, bool) { return 0, false }

// PeekDatagram is for Linux only.
func PeekDatagram(*os.File) (*Datagram, error) { return nil, errors.ErrUnsupported }

// DropDatagram is for Linux only.
func DropDatagram(*os.File) error { return errors.ErrUnsupported }

// Pending is for Linux only.
func Pending(*os.File) bool { return false }

// AwaitLine needs tee(2).
func AwaitLine(*os.File, int) ([]byte, bool, error) { return nil, false, errors.ErrUnsupported }

// CgroupID is for Linux only.
func CgroupID(string) (uint64, bool) { return 0, false }

// PeekPending is for Linux only.
func PeekPending(*os.File) (*Datagram, error) { return nil, errors.ErrUnsupported }
