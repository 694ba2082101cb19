package main

import (
	"path/filepath"

	"procsup/supervisor/client"
)

const daemonName = client.DaemonName

func findDaemon() (string, error)            { return client.FindDaemon() }
func startDaemon(socket, state string) error { return client.StartDaemon(socket, state) }
func base(path string) string                { return filepath.Base(path) }
