//go:build !linux

package platform

func systemRandom([]byte) bool { return false }
