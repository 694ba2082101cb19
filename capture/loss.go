package capture

import (
	"errors"
	"io/fs"
	"slices"
)

// loss says why bytes were not kept. The numbers are in index files.
type loss uint8

const (
	lossLimit     loss = iota // MaxOutput: foreseen, so no reason is given
	lossFull                  // ENOSPC
	lossDiskQuota             // EDQUOT
	lossFileSize              // EFBIG, RLIMIT_FSIZE; Go's runtime catches the SIGXFSZ that comes with it
	lossDeleted
	lossReplaced
	lossTruncated
	lossWrite // any other error
	lossEvicted
	lossUnknown // no record, but a hole in the file
)

var lossText = [...]string{
	lossLimit:     "",
	lossFull:      "disk full",
	lossDiskQuota: "disk quota exceeded",
	lossFileSize:  "file size limit",
	lossDeleted:   "spool deleted",
	lossReplaced:  "spool moved or replaced",
	lossTruncated: "spool truncated",
	lossWrite:     "write error",
	lossEvicted:   "state quota",
	lossUnknown:   "no record",
}

func (l loss) String() string {
	if int(l) < len(lossText) {
		return lossText[l]
	}
	return lossText[lossUnknown]
}

// lossNamed is the reverse of String.
func lossNamed(text string) loss {
	return loss(max(slices.Index(lossText[:], text), 0))
}

// lossOf sorts an error of the spool.
func lossOf(err error) loss {
	if errors.Is(err, fs.ErrNotExist) {
		return lossDeleted
	}
	return lossOfErrno(err)
}
