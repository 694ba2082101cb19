package main

import (
	"procsup/capture"
	"procsup/handles"
)

// text is head and tail of a stream for the record.
func (s *streams) text(src capture.Source) *handles.Text {
	v := s.log.HeadTail(src, inlineOutput)
	return &handles.Text{Text: v.Text, Encoding: v.Encoding, From: v.From, To: v.To, Total: v.Total, Omitted: v.Omitted}
}
