package platform

import (
	"errors"
	"os"
)

// A FIFO is not there on Windows.
type FIFO struct{ Path string }

// MakeFIFO answers errors.ErrUnsupported.
func MakeFIFO() (*FIFO, error) { return nil, errors.ErrUnsupported }

// Writer answers errors.ErrUnsupported.
func (p *FIFO) Writer() (*os.File, error) { return nil, errors.ErrUnsupported }

// Close does nothing.
func (p *FIFO) Close() {}
