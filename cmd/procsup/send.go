package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"procsup/handles"
	"procsup/platform"
)

// sendPiece is how much of stdin is sent at once.
const sendPiece = 64 << 10

const sendHelp = `Writes to the stdin of HANDLE, which was started with --stdin pipe: TEXT and a
newline, or without TEXT all of our own stdin, byte for byte. --close then
closes it. It waits as long as the command does not read.

Exit codes: 0 written · 73 it has ended, or its stdin is not open · 66 no such
handle · 69 no daemon · 125 it is unknown how much was written · 64 usage.

Examples:
   procsup send $h 'print(6*7)'
   procsup send $h --close <input.txt
   procsup send $h -n 'no newline'`

func sendCommand() *cli.Command {
	return verb("send", "write to a handle's stdin", "HANDLE [TEXT]", sendHelp, doSend,
		&cli.BoolFlag{Name: "close", Usage: "close its stdin then"},
		&cli.BoolFlag{Name: "no-newline", Aliases: []string{"n"}, Usage: "no newline behind TEXT"},
	)
}

func doSend(c *cli.Context, r *remote) error {
	ref := c.Args().First()
	var rec *handles.Record
	write := func(data []byte, last bool) error {
		return r.do(func() (err error) {
			rec, err = r.Send(context.Background(), ref, data, last)
			return err
		})
	}
	var err error
	switch {
	case c.NArg() == 0:
		return usagef("send: no handle given; procsup list shows them")
	case c.NArg() > 2:
		return usagef("send: one text at a time, not %q; quote it", c.Args().Slice()[1:])
	case c.NArg() == 2:
		text := c.Args().Get(1)
		if !c.Bool("no-newline") {
			text += "\n"
		}
		err = write([]byte(text), c.Bool("close"))
	case c.Bool("close") && platform.IsTerminal(0):
		err = write(nil, true)
	default:
		err = sendAll(os.Stdin, c.Bool("close"), write)
	}
	if err == nil && c.Bool("json") && rec != nil {
		return printJSON(c, rec)
	}
	return err
}

// sendAll sends what it reads piece by piece, as it comes.
func sendAll(from io.Reader, closeAfter bool, write func([]byte, bool) error) error {
	buf := make([]byte, sendPiece)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if werr := write(buf[:n], false); werr != nil {
				return werr
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if closeAfter {
				return write(nil, true)
			}
			return nil
		default:
			return unusable("send: read stdin: %v", reason(err))
		}
	}
}
