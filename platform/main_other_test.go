//go:build !linux

package platform

var helpers = map[string]func([]string) int{"hang": hang}

func leftovers() string { return "" }
