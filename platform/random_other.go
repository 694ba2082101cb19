//go:build !linux

package platform

import "crypto/rand"

// Random fills p from the system's cryptographic generator.
func Random(p []byte) { _, _ = rand.Read(p) }
