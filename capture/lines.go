package capture

import "bytes"

// Strip takes terminal escapes and carriage returns out of bytes that come in
// pieces. The zero value is ready.
type Strip struct{ s stripper }

// Append appends to dst what stays of src.
func (v *Strip) Append(dst, src []byte) []byte {
	v.s.runs(src, func(i, j int) { dst = append(dst, src[i:j]...) })
	return dst
}

// lineMax is how much of a line is held back for a rewrite that may come.
const lineMax = 64 << 10

// Lines collapses lines that are rewritten by carriage returns, such as
// progress bars, to their last state, in bytes that come in pieces. A line is
// held back until its newline, at most 64 KiB of it. The zero value is ready.
type Lines struct {
	// Collapsed counts the rewrites that were left out.
	Collapsed int64

	line []byte // since the last newline or carriage return
	cr   bool   // a carriage return came behind it
	long bool   // the line's beginning is out, rewrites can no longer be hidden
}

// Append appends to dst the lines that src completes.
func (v *Lines) Append(dst, src []byte) []byte {
	for len(src) > 0 {
		k := bytes.IndexAny(src, "\r\n")
		if k < 0 {
			k = len(src)
		}
		if k > 0 {
			dst = v.add(dst, src[:k])
		}
		if k == len(src) {
			break
		}
		if src[k] == '\n' {
			dst = append(v.Flush(dst), '\n')
		} else {
			v.cr = len(v.line) > 0 || v.long
		}
		src = src[k+1:]
	}
	return dst
}

// add adds text of one line. Behind a carriage return it replaces what is there.
func (v *Lines) add(dst, b []byte) []byte {
	if v.cr {
		if v.long { // what is out stays, as a line of its own
			dst = append(append(dst, v.line...), '\n')
		} else {
			v.Collapsed++
		}
		v.line, v.cr, v.long = v.line[:0], false, false
	}
	v.line = append(v.line, b...)
	if len(v.line) > lineMax {
		dst = append(dst, v.line...)
		v.line, v.long = v.line[:0], true
	}
	return dst
}

// Flush appends what is held back, at the end of the stream.
func (v *Lines) Flush(dst []byte) []byte {
	dst = append(dst, v.line...)
	v.line, v.cr, v.long = v.line[:0], false, false
	return dst
}
