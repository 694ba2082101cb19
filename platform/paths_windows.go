package platform

import (
	"os"
	"path/filepath"
)

const (
	maxSocketPath = 107   // UNIX_PATH_MAX with the final NUL, afunix.h
	modesCount    = false // access control lists decide
)

func homeDir() string { return os.Getenv("USERPROFILE") }

// sharedDir lies in a folder that is the user's own on Windows.
func sharedDir() string { return filepath.Join(os.TempDir(), "procsup") }

// ownedByUs believes it: the temporary folder is the user's own.
func ownedByUs(os.FileInfo) bool { return true }
