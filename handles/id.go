// Package handles holds what the rest of procsup says about commands: ids,
// states and records. It has no behaviour of its own and touches no process.
package handles

import (
	"time"

	"github.com/oklog/ulid/v2"

	"procsup/platform"
)

// CommandPrefix begins the id of every command, FilePrefix that of every file
// operation.
const (
	CommandPrefix = "hto-"
	FilePrefix    = "hso-"
)

// An ID names one run of one command: CommandPrefix and a ULID. It sorts by
// time, is never reused and cannot be guessed.
type ID string

// NewID makes an id for a command. Its 80 random bits come from the system's
// generator by way of platform, as crypto/rand takes 40 µs to set up, which every
// `procsup run` would pay.
func NewID() ID {
	return ID(CommandPrefix + ulid.MustNew(ulid.Timestamp(time.Now()), platform.Random{}).String())
}
