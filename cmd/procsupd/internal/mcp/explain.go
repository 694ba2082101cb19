package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"procsup/handles"
	"procsup/supervisor/client"
)

// hints say what to do in terms of these tools; those of the daemon speak of
// the command line.
var hints = map[handles.Code]string{
	handles.CodeNotFound:     "list shows the handles of this connection",
	handles.CodeAmbiguous:    "give the whole id; list shows them",
	handles.CodeNameTaken:    "use another name, or the command that has it: list shows it",
	handles.CodeAlreadyEnded: "read_output still gives what it wrote",
	handles.CodeInboxFull:    "take_finished and acknowledge make room, so does cancel",
	handles.CodeFull:         "cancel what is not needed any more: list shows it",
	handles.CodeConflict:     "write_stdin needs a command that was started with open_stdin and still reads",
	handles.CodeUnknown:      "list shows what runs",
	handles.CodeDraining:     "try again in a moment",
}

// explain makes the error of a call one that a model can act on.
func explain(err error) error {
	var e *handles.Error
	switch {
	case errors.As(err, &e):
		told := *e
		told.Hint = hints[e.Code]
		return errors.New(strings.Replace(err.Error(), e.Error(), told.Error(), 1))
	case errors.Is(err, client.ErrNoDaemon):
		return fmt.Errorf("the procsup daemon does not answer: %w", err)
	case errors.Is(err, context.Canceled):
		return errors.New("the call was cancelled")
	}
	return err
}
