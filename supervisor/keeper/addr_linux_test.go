package keeper

import "unsafe"

//go:norace
//go:nosplit
func addr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
