package main

import (
	"procsup/capture"
	"procsup/handles"
)

// text is head and tail of a stream for the record.
func (s *streams) text(src capture.Source) *handles.Text {
	v, err := s.log.HeadTail(src, inlineOutput)
	if err != nil {
		return nil // the spool is gone; Why in the record's output says so
	}
	return &handles.Text{
		Encoding: v.Encoding, Text: v.Text, Base64: v.Base64,
		From: v.From, To: v.To, Total: v.Total, Omitted: v.Omitted, Gaps: ranges(v.Gaps),
	}
}

func ranges(rs []capture.Range) []handles.Range {
	var out []handles.Range
	for _, r := range rs {
		out = append(out, handles.Range{From: r.From, To: r.To})
	}
	return out
}
