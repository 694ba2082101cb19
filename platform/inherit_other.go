//go:build !linux

package platform

// InheritedSignals cannot be told here.
func InheritedSignals() Inherited { return Inherited{} }

// Restore does nothing here.
func (in Inherited) Restore() bool { return false }

// WithMask runs start.
func (in Inherited) WithMask(start func()) { start() }
