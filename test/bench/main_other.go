//go:build !linux

// Command bench measures procsup against the bare limits; on Linux only.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: only on Linux")
	os.Exit(1)
}
