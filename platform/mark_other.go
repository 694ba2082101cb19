//go:build !linux

package platform

// DropMark does nothing here: there are no marks.
func DropMark() {}
