// Package handles holds what the rest of procsup says about commands: ids,
// states and records. It has no behaviour of its own and touches no process.
package handles

import (
	"encoding/binary"
	"time"

	"procsup/platform"
)

// CommandPrefix begins the id of every command, FilePrefix that of every file
// operation.
const (
	CommandPrefix = "hto-"
	FilePrefix    = "hso-"
	batchPrefix   = "bat-"
	sessionPrefix = "ses-"
)

// An ID names one run of one command: CommandPrefix and a ULID. It sorts by
// time, is never reused and cannot be guessed.
type ID string

// NewID makes an id for a command: 48 bits of time in milliseconds and 80
// random ones, written as a ULID (github.com/ulid/spec). It is written out here
// because the usual package brings crypto/rand, math/big and database/sql with
// it, which costs every `procsup run` some 0.15 ms of start-up.
func NewID() ID { return ID(CommandPrefix + newULID()) }

// NewBatchID makes an id for a batch of an inbox.
func NewBatchID() string { return batchPrefix + newULID() }

// NewSessionName makes a name for a session that was given none.
func NewSessionName() string { return sessionPrefix + newULID() }

func newULID() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(time.Now().UnixMilli())<<16)
	platform.Random(b[6:])
	return encodeULID(b)
}

// encodeULID writes 16 bytes as 26 characters.
func encodeULID(b [16]byte) string {
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	var out [26]byte
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	for i := 25; i >= 0; i-- {
		out[i] = digits[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return string(out[:])
}
