package main

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"procsup/platform"
	"procsup/supervisor/wire"
)

const version = wire.Version

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version; with --json also what this system can do",
		Description: `Examples:
   procsup version
   procsup version --json | jq .capabilities.group_kill`,
		OnUsageError: onUsageError,
		Flags:        []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON"}},
		Action: func(c *cli.Context) error {
			if !c.Bool("json") {
				_, err := fmt.Fprintln(c.App.Writer, "procsup "+version)
				return err
			}
			r := diagnose("", "")
			return json.NewEncoder(c.App.Writer).Encode(struct {
				Version      string                `json:"version"`
				Go           string                `json:"go"`
				OS           string                `json:"os"`
				Arch         string                `json:"arch"`
				Containment  platform.Containment  `json:"containment"`
				Capabilities platform.Capabilities `json:"capabilities"`
			}{version, runtime.Version(), r.OS, r.Arch, r.Containment, r.Capabilities})
		},
	}
}
