package platform

import "crypto/rand"

// Random reads from the system's cryptographic generator.
type Random struct{}

// Read fills p; it never returns an error.
func (Random) Read(p []byte) (int, error) {
	if systemRandom(p) {
		return len(p), nil
	}
	return rand.Read(p)
}
