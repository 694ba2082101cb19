package capture

import (
	"fmt"
	"os"
)

// unlinked makes a file in dir and takes its name away at once.
func unlinked(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "procsup-")
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	os.Remove(f.Name()) // where open files cannot be removed, it stays until the system cleans up
	return f, nil
}
