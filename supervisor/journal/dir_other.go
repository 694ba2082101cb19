//go:build !unix

package journal

import (
	"errors"
	"os"
)

const openNoFollow = 0

func checkOwner(string, os.FileInfo) error { return nil }

// Lock is not there yet on this system.
func Lock(dir string) (*os.File, error) { return nil, errors.ErrUnsupported }

// LockWhenFree is not there yet on this system.
func LockWhenFree(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// LockedBy is not there yet on this system.
func LockedBy(string) int { return 0 }

// LockAgain is not there yet on this system.
func LockAgain(*os.File) error { return errors.ErrUnsupported }

// NameHolder is not there yet on this system.
func NameHolder(string) error { return errors.ErrUnsupported }

func probe(string) error { return nil }

func fullDisk(_ string, err error) error { return err }
