package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
)

// estateFormat is the newest estate that this code reads and the one it writes.
const estateFormat = 1

// An Estate is what a keeper left to the process that goes on as keeper in its
// place by execve(2): the descriptors are the same, only their owner is new.
type Estate struct {
	Lock  *os.File   // Config.Lock of the one before; nil: it had none
	Files []*os.File // its Config.Files
	Carry map[string]string

	body estate
}

// An estate is an Estate between the two programs. Descriptors are by number,
// -1 is none. Readers ignore fields that they do not know.
type estate struct {
	Format     int               `json:"format"`
	Generation int               `json:"generation"` // of the last supervisor
	Exits      int64             `json:"exits"`
	Told       bool              `json:"told"` // Config.Ready was called
	Marks      bool              `json:"marks"`
	Exe        []byte            `json:"exe"`
	GoodExe    []byte            `json:"good_exe"`
	Upgraded   []byte            `json:"upgraded,omitempty"` // what demanded this keeper
	StopAtNS   int64             `json:"stop_at_ns,omitempty"`
	Lock       int               `json:"lock"`
	Files      []int             `json:"files,omitempty"`
	Carry      map[string]string `json:"carry,omitempty"`
	Runs       []estateRun       `json:"runs,omitempty"`
}

type estateRun struct {
	ID       string    `json:"id"`
	Token    string    `json:"token,omitempty"`
	Gen      int       `json:"gen"`
	Pipes    []int     `json:"pipes,omitempty"`
	Mark     uint64    `json:"mark,omitempty"`
	Since    uint64    `json:"since,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Ticks    uint64    `json:"ticks,omitempty"`
	PipeIDs  []fileID  `json:"pipe_ids,omitempty"` // of Pipes if these may have been closed since; none: they were not
	Pidfd    int       `json:"pidfd"`
	PidfdID  *fileID   `json:"pidfd_id,omitempty"`
	Adopted  bool      `json:"adopted,omitempty"`
	Stranger bool      `json:"stranger,omitempty"` // no child of this process
	Pending  bool      `json:"pending,omitempty"`
	Exit     *exitBody `json:"exit,omitempty"`

	num       int          // for the order of the list
	held      []Descriptor // what Pipes are the numbers of, when others can close them
	heldPidfd Descriptor
}

// A fileID tells an open file from another that got its number, see fstat(2).
type fileID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

func parseEstate(b []byte) (e estate, err error) {
	if err := json.Unmarshal(b, &e); err != nil {
		return e, fmt.Errorf("parse estate: %w", err)
	}
	if e.Format < 1 || e.Format > estateFormat {
		return e, fmt.Errorf("parse estate: format %d, this program reads 1 to %d", e.Format, estateFormat)
	}
	seen := map[string]bool{}
	for _, r := range e.Runs {
		if !validID(r.ID) || seen[r.ID] || len(r.Token) > maxToken || len(r.Pipes) > maxPipes || r.PID < 0 || len(r.PipeIDs) > 0 && len(r.PipeIDs) != len(r.Pipes) {
			return e, fmt.Errorf("parse estate: run %q with %d pipes, pid %d", r.ID, len(r.Pipes), r.PID)
		}
		seen[r.ID] = true
	}
	if e.Generation < 1 {
		return e, errors.New("parse estate: no generation")
	}
	return e, nil
}

// descriptors lists the numbers in an estate.
func (e *estate) descriptors() []int {
	out := append([]int{e.Lock}, e.Files...)
	for _, r := range e.Runs {
		out = append(append(out, r.Pipes...), r.Pidfd)
	}
	return slices.DeleteFunc(out, func(fd int) bool { return fd < 0 })
}
